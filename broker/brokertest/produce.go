package brokertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A produced record and what has to come of it.
type produced struct {
	origin string // topic/partition/offset
	value  string
	at     time.Time // when it was produced
	target string    // where it has to come out: its target, or the dead-letter topic
	due    int64     // 0 for a dead letter
}

func (p *player) createTopic(name string, a arguments) error {
	partitions, err := strconv.Atoi(a.value("partitions", "1"))
	if err != nil {
		return err
	}
	user, admin := p.user()
	defer user.Close()
	if _, err = admin.CreateTopic(context.Background(), int32(partitions), 1, nil, name); err == nil {
		p.observer.exists(name)
	}
	return err
}

// produce writes count records, every so often, to the partitions in turn. The
// argument spread moves their due times apart; value and key get the number of the
// record appended where they hold a %.
func (p *player) produce(topic string, a arguments) error {
	count, err := strconv.Atoi(a.value("count", "1"))
	if err != nil {
		return err
	}
	every, spread := p.span(a.value("every", "0s")), p.span(a.value("spread", "0s"))
	user, admin := p.user()
	defer user.Close()
	partitions, err := partitions(admin, topic)
	if err != nil {
		return err
	}
	var records []*kgo.Record
	for i := range count {
		number := strconv.Itoa(len(p.produced) + i)
		record := &kgo.Record{
			Topic:     topic,
			Partition: int32((len(p.produced) + i) % partitions),
			Value:     []byte(strings.ReplaceAll(a.value("value", "v%"), "%", number)),
		}
		if key, ok := a.values["key"]; ok {
			record.Key = []byte(strings.ReplaceAll(key, "%", number))
		}
		for _, name := range a.order {
			value := a.values[name]
			if name == client.HeaderAfter && spread > 0 {
				value = (p.span(value) + spread*time.Duration(i)/time.Duration(count)).String()
			} else if name == client.HeaderAfter {
				value = p.afterText(value)
			}
			if strings.HasPrefix(name, client.InstructionPrefix) || strings.HasPrefix(name, "h-") || strings.HasPrefix(name, "__carillon.") {
				record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
			}
		}
		records = append(records, record)
		if every > 0 {
			if err := p.send(user, records); err != nil {
				return err
			}
			records = records[:0]
			p.pause(every)
		}
	}
	return p.send(user, records)
}

// afterText turns a script's days and years into what the header takes; anything
// that is no duration goes out as it is, to be refused.
func (p *player) afterText(value string) string {
	d, err := parseSpan(value)
	if err != nil {
		return value
	}
	return d.String()
}

func (p *player) send(user *kgo.Client, records []*kgo.Record) error {
	if len(records) == 0 {
		return nil
	}
	for _, result := range user.ProduceSync(context.Background(), records...) {
		if result.Err != nil {
			return result.Err
		}
		p.produced = append(p.produced, p.expected(result.Record))
	}
	return nil
}

// expected says what has to come of the record, by the contract.
func (p *player) expected(r *kgo.Record) produced {
	out := produced{
		origin: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset),
		value:  string(r.Value),
		at:     r.Timestamp,
		target: p.config.DeadLetter.Topic,
	}
	in, err := client.Parse(r.Headers, r.Timestamp.UnixMilli())
	if err != nil {
		return out
	}
	out.target, out.due = in.To, in.DueAt
	if out.target == "" {
		out.target = strings.TrimSuffix(r.Topic, ".delay")
	}
	if !p.config.Targets.Allows(out.target) {
		out.target, out.due = p.config.DeadLetter.Topic, 0
	}
	return out
}

func partitions(admin *kadm.Client, topic string) (int, error) {
	details, err := admin.ListTopics(context.Background(), topic)
	if err != nil {
		return 0, err
	}
	if err := details.Error(); err != nil {
		return 0, err
	}
	return len(details[topic].Partitions), nil
}
