package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A produced record and what has to come of it.
type produced struct {
	origin string // topic/partition/offset
	value  string
	at     time.Time // when it was produced
	target string    // where it has to come out: its target, or the dead-letter topic
	due    int64     // 0 for a dead letter

	topicID   [16]byte // the origin once more
	partition int32
	offset    int64

	aborted bool // in a transaction that was
	large   bool // perhaps more than its target takes
	gone    bool // deleted from the delay topic, perhaps before it was taken in
	lost    bool // others have its offset
}

// apart returns the step, or, of one that produces records, or changes messages, about so far apart, one step
// for each of them: what else the script wants happens in between. They come as those of many users do: the
// pauses are now long and now short.
func (s step) apart() []step {
	text, apart := s.args.values["about"]
	if !apart {
		return []step{s}
	}
	about, _ := parseSpan(text)
	count, _ := strconv.Atoi(s.args.value("count", "1"))
	steps := make([]step, count)
	pauses, at := chances(s.line), s.at
	for i := range steps {
		one := s
		one.at = at
		one.args.values = maps.Clone(s.args.values)
		delete(one.args.values, "about")
		one.args.values["count"] = "1"
		switch s.verb {
		case "change":
			one.args.values[client.HeaderID] = s.args.changed(i, count)
		case "produce":
			one.args.putOff(s.args.share(i, count))
		}
		one.args.order = slices.DeleteFunc(slices.Clone(s.args.order), func(name string) bool { return name == "about" })
		steps[i] = one
		at += time.Duration(pauses.ExpFloat64() * float64(about))
	}
	return steps
}

// share returns how much later than the first a record of so many is due, by the argument spread: the last one the
// latest, or with backwards the first one.
func (a arguments) share(i, count int) time.Duration {
	spread, _ := parseSpan(a.value("spread", "0s"))
	if a.has("backwards") {
		i = count - 1 - i
	}
	return spread * time.Duration(i) / time.Duration(count)
}

// putOff has all records be due so much later, in place of what is spread.
func (a arguments) putOff(by time.Duration) {
	delete(a.values, "spread")
	for _, name := range []string{client.HeaderAt, client.HeaderAfter} {
		if text, given := a.values[name]; given && by > 0 {
			a.values[name] = laterText(text, by)
		}
	}
}

// produce writes count records, every so often, to the partitions in turn. The argument spread
// moves their due times apart, with backwards the first one the furthest, the argument scatter as well, but in no order; value, key, deliver-to
// and deliver-id get the number of the record where they hold a %, the last three modulo keys,
// targets and ids. With transactional or abort all are in one transaction.
func (p *player) produce(topic string, a arguments) error {
	every := p.span(a.value("every", "0s"))
	count, err := strconv.Atoi(a.value("count", "1"))
	if err != nil {
		return err
	}
	id := p.kafka.TopicInfo(topic)
	if id == nil {
		return errNoEffect
	}
	b := batch{topicID: id.TopicID, aborted: a.has("abort")}
	var options []kgo.Opt
	if b.aborted || a.has("transactional") {
		options = append(options, kgo.TransactionalID(fmt.Sprintf("user-%d", len(p.produced))), kgo.TransactionTimeout(10*time.Minute))
	}
	user, admin := p.user(options...)
	defer user.Close()
	partitions, err := partitions(admin, topic)
	if err != nil {
		return err
	}
	if len(options) > 0 {
		if err := user.BeginTransaction(); err != nil {
			return err
		}
	}
	first := len(p.produced)
	var records []*kgo.Record
	scatter := p.span(a.value("scatter", "0s"))
	later := func(i int) time.Duration {
		return a.share(i, count) + scattered(first+i, scatter)
	}
	for i := range count {
		records = append(records, p.record(topic, int32((first+i)%partitions), a, numbers{first + i, later(i)}))
		if every > 0 {
			if err := p.send(user, b, records); err != nil {
				return err
			}
			records = records[:0]
			p.pause(every)
		}
	}
	if err := p.send(user, b, records); err != nil || len(options) == 0 {
		return err
	}
	return user.EndTransaction(context.Background(), kgo.TransactionEndTry(!b.aborted))
}

// chances are those of a record, or of a line, the same each time that a script is played.
func chances(number int) *rand.Rand { return rand.New(rand.NewPCG(uint64(number), 0)) }

// scattered returns a part of the span, for each number another one.
func scattered(number int, span time.Duration) time.Duration {
	return time.Duration(chances(number).Float64() * float64(span)).Truncate(time.Millisecond)
}

// numbers are what differs between the records of one step.
type numbers struct {
	record int
	later  time.Duration
}

// record makes the next record of a step.
func (p *player) record(topic string, partition int32, a arguments, n numbers) *kgo.Record {
	number := strconv.Itoa(n.record)
	record := &kgo.Record{
		Topic:     topic,
		Partition: partition,
		Value:     []byte(strings.ReplaceAll(a.value("value", "v%"), "%", number)),
	}
	if size, _ := strconv.Atoi(a.value("bytes", "0")); size > len(record.Value) {
		record.Value = append(record.Value, bytes.Repeat([]byte{'.'}, size-len(record.Value))...)
	}
	if key, ok := a.values["key"]; ok {
		if keys, _ := strconv.Atoi(a.value("keys", "0")); keys > 0 {
			number = strconv.Itoa(n.record % keys)
		}
		record.Key = []byte(strings.ReplaceAll(key, "%", number))
	}
	for _, name := range a.order {
		if !isHeader(name) {
			continue
		}
		value := a.values[name]
		switch {
		case (name == client.HeaderAfter || name == client.HeaderAt) && n.later > 0:
			value = laterText(value, n.later)
		case name == client.HeaderAfter:
			value = p.afterText(value)
		case name == client.HeaderTo:
			targets, _ := strconv.Atoi(a.value("targets", "1"))
			value = strings.ReplaceAll(value, "%", strconv.Itoa(n.record%targets))
		case name == client.HeaderID:
			ids, _ := strconv.Atoi(a.value("ids", number))
			value = strings.ReplaceAll(value, "%", strconv.Itoa(n.record%max(1, ids)))
		case name == client.HeaderExpiresAfter:
			value = p.afterText(value)
		}
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record
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

// laterText moves a moment or a delay, in the way in which it is written; what is none stays as it is.
func laterText(value string, by time.Duration) string {
	if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
		return strconv.FormatInt(ms+by.Milliseconds(), 10)
	}
	if moment, err := time.Parse(time.RFC3339Nano, value); err == nil {
		return moment.Add(by).Format(time.RFC3339Nano)
	}
	if delay, err := parseSpan(value); err == nil {
		return (delay + by).String()
	}
	return value
}

// A batch is what the records of one step have in common.
type batch struct {
	topicID [16]byte
	aborted bool
}

func (p *player) send(user *kgo.Client, b batch, records []*kgo.Record) error {
	if len(records) == 0 {
		return nil
	}
	for _, result := range user.ProduceSync(context.Background(), records...) {
		if result.Err != nil {
			return result.Err
		}
		r := p.expected(result.Record)
		r.topicID, r.partition, r.offset = b.topicID, result.Record.Partition, result.Record.Offset
		r.aborted, r.large = b.aborted, len(result.Record.Value) > mostSurelyTaken
		p.produced = append(p.produced, r)
	}
	return nil
}

// mostSurelyTaken is how large a value may be that any target takes: kfake's default is a batch
// of 1 MiB, and delivered headers come on top.
const mostSurelyTaken = 900 << 10

// expected says what has to come of the record, by the contract.
func (p *player) expected(r *kgo.Record) produced {
	out := produced{
		origin: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset),
		value:  string(r.Value),
		at:     r.Timestamp,
		target: p.config.DeadLetter.Topic,
	}
	in, err := client.Parse(r.Headers, r.Timestamp.UnixMilli())
	if err != nil || asksOfIDs(in) && !p.knowsIDs() {
		return out
	}
	if in.Verb == client.VerbCancel {
		out.target = ""
		return out
	}
	out.target, out.due = in.To, in.DueAt
	if out.target == "" {
		out.target = strings.TrimSuffix(r.Topic, ".delay")
	}
	if !p.config.Targets.Allows(out.target) || p.refusesForged() && isForged(r) {
		out.target, out.due = p.config.DeadLetter.Topic, 0
	}
	return out
}

// asksOfIDs reports whether the instruction needs more than level two.
func asksOfIDs(in client.Instruction) bool {
	return in.Verb == client.VerbCancel || in.If != client.Always || in.Expires > 0
}

// knowsIDs reports whether the cluster takes what is asked of ids: whether its level is high enough, not only its programs.
func (p *player) knowsIDs() bool { return p.levelInForce() >= storage.LevelThree }

// refusesForged reports whether the cluster refuses what has the headers of a dead letter: it cannot
// tell it from one below feature level two.
func (p *player) refusesForged() bool { return p.levelInForce() < storage.LevelTwo }

// levelInForce returns the feature level of the cluster. A node that starts or lags has not applied all that raised it,
// and one that is down tells none.
func (p *player) levelInForce() storage.Level {
	level := p.observer.levelRaised()
	for _, n := range p.nodes {
		if n.running() {
			level = max(level, n.raft().Store().Level())
		}
	}
	return level
}

func isForged(r *kgo.Record) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return strings.HasPrefix(h.Key, deadLetterPrefix) })
}
