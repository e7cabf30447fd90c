package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/e2e/torture"
)

const (
	lateTopic    = "late"          // a target that is missing at first
	nowhereDelay = "nowhere.delay" // its messages are for a topic that never is
	tortureRate  = 100             // messages a second
)

// tortureTargets are the targets, each as often as messages go there.
func tortureTargets() []string {
	return []string{"orders", "orders", "orders", "orders", "orders", "mail", "mail", "mail", "bills", lateTopic}
}

// tortureTopics are those that are there from the beginning.
func tortureTopics() []string {
	return []string{delayTopic, nowhereDelay, "orders", "mail", "bills", deadLetterTopic}
}

// patientClient is a client for use during faults: it looks for new leaders each second.
func (o *ordeal) patientClient(opts ...kgo.Opt) *kgo.Client {
	return o.kafka.client(append(opts, kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RequestTimeoutOverhead(5*time.Second), kgo.DialTimeout(2*time.Second), kgo.RetryTimeout(10*time.Second))...)
}

// A traffic is messages that come and go at a steady rate.
type traffic struct {
	o                  *ordeal
	producer, consumer *kgo.Client
	random             *rand.Rand
	longest            time.Duration  // the longest delay, but for what is due after the run
	sent, far          int            // far: due long after the run
	stop               func()         // ends the schedule of messages; what was scheduled comes
	all                sync.WaitGroup // what schedules, and what creates the missing target
}

func (o *ordeal) startTraffic(s torture.Setting) *traffic {
	tr := &traffic{
		o:        o,
		producer: o.patientClient(kgo.MaxBufferedRecords(1 << 20)),
		random:   rand.New(rand.NewPCG(s.Seed, 0)),
		longest:  min(2*time.Minute, time.Duration(s.Faults)*2*time.Second),
	}
	stopping := make(chan struct{})
	tr.stop = sync.OnceFunc(func() { close(stopping); tr.all.Wait() })
	tr.consume()
	tr.all.Go(func() { tr.createLate(stopping) })
	tr.all.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stopping:
				return
			case now := <-tick.C:
				for range tortureRate / 100 {
					tr.schedule(now)
				}
			}
		}
	})
	return tr
}

// schedule produces one message: most are for soon, some are past due, some for minutes later, and a
// few cannot be scheduled or delivered.
func (tr *traffic) schedule(now time.Time) {
	tr.sent++
	r := tr.random
	var delay time.Duration
	switch n := r.IntN(100); {
	case n < 15:
		delay = -time.Duration(r.Int64N(int64(time.Hour)))
	case n < 50:
		delay = time.Duration(r.Int64N(int64(time.Second)))
	case n < 85:
		delay = time.Duration(r.Int64N(int64(10 * time.Second)))
	default:
		delay = time.Duration(r.Int64N(int64(tr.longest)))
	}
	targets := tortureTargets()
	m := torture.Message{Number: tr.sent, Topic: targets[r.IntN(len(targets))], Fate: torture.Delivered}
	topic, at := delayTopic, ""
	switch n := r.IntN(200); {
	case n == 0:
		delay = 30 * 24 * time.Hour
		tr.far++
	case n == 1:
		topic, m.Topic, m.Fate = nowhereDelay, deadLetterTopic, torture.DeadLettered
		delay = min(delay, 5*time.Second)
	case n == 2:
		m.Topic, m.Fate, at = deadLetterTopic, torture.DeadLettered, "soon"
		delay = 0
	}
	m.Timely = m.Fate == torture.Delivered && m.Topic != lateTopic
	m.Due = now.Add(delay).UnixMilli()
	if at == "" {
		at = strconv.FormatInt(m.Due, 10)
	}
	to := m.Topic
	if m.Fate == torture.DeadLettered {
		to = "nowhere"
	}
	tr.o.ledger.Sent(m, now)
	tr.producer.Produce(context.Background(), &kgo.Record{
		Topic: topic, Key: fmt.Appendf(nil, "key %d", r.IntN(100)), Value: strconv.AppendInt(nil, int64(m.Number), 10),
		Headers: []kgo.RecordHeader{{Key: client.HeaderAt, Value: []byte(at)}, {Key: client.HeaderTo, Value: []byte(to)}},
	}, func(r *kgo.Record, err error) {
		tr.o.ledger.Taken(m.Number, fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset), err, time.Now())
	})
}

// createLate creates the missing target after a while, however long Kafka cannot.
func (tr *traffic) createLate(stopping <-chan struct{}) {
	select {
	case <-time.After(tr.longest):
	case <-stopping:
	}
	admin := kadm.NewClient(tr.o.patientClient())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; ; <-tick.C {
		answer, err := admin.CreateTopic(tr.o.t.Context(), 6, -1, nil, lateTopic)
		if err == nil || answer.Err == kerr.TopicAlreadyExists || tr.o.t.Context().Err() != nil {
			break
		}
	}
	tr.o.write("the target %s is there", lateTopic)
	tr.consumer.AddConsumeTopics(lateTopic)
}

func (tr *traffic) consume() {
	tr.consumer = tr.o.patientClient(kgo.ConsumeTopics("orders", "mail", "bills", deadLetterTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := tr.consumer.PollFetches(ctx)
			now := time.Now()
			fetches.EachRecord(func(r *kgo.Record) { tr.o.ledger.Enter(asCopy(r, now)) })
		}
	}()
	tr.o.t.Cleanup(func() { cancel(); <-done })
}

// asCopy reads what a target or dead-letter topic holds.
func asCopy(r *kgo.Record, came time.Time) torture.Copy {
	c := torture.Copy{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Written: r.Timestamp.UnixMilli(), Came: came}
	c.Number, _ = strconv.Atoi(string(r.Value)) // 0 is what nobody sent
	letter := map[string]string{}
	for _, h := range r.Headers {
		switch h.Key {
		case client.HeaderDeliveredFrom:
			c.Origin = string(h.Value)
		case client.HeaderDeliveredSeq:
			c.Seq = string(h.Value)
		case client.HeaderDeliveredFor:
			c.Due, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0 was never asked for
		default:
			letter[h.Key] = string(h.Value)
		}
	}
	if c.Origin == "" {
		c.Origin = letter[client.HeaderErrorTopic] + "/" + letter[client.HeaderErrorPartition] + "/" + letter[client.HeaderErrorOffset]
	}
	return c
}

// settle waits until every record has its fate, all nodes agree on what is pending, and all topics are
// read to their ends. It returns how many records are to wait.
func (o *ordeal) settle(tr *traffic) (far int) {
	o.t.Helper()
	if err := tr.producer.Flush(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	o.t.Logf("%d faults are over, %d messages were produced", len(o.strikes), tr.sent)
	all := o.expect(tr.longest+3*patience, "every record has its fate or waits for a time to come", func() bool {
		overdue, later := o.ledger.Open(time.Now())
		return overdue == 0 && later <= tr.far
	})
	if !all {
		overdue, later := o.ledger.Open(time.Now())
		o.t.Logf("%d records are overdue, %d wait", overdue, later)
	}
	for _, n := range o.nodes.nodes {
		o.expect(patience, fmt.Sprintf("%s says that %d messages are pending", n.ID, tr.far), func() bool {
			s, err := n.status()
			return err == nil && s.Pending == uint64(tr.far)
		})
	}
	admin := kadm.NewClient(o.patientClient())
	for _, topic := range []string{"orders", "mail", "bills", lateTopic, deadLetterTopic} {
		o.expect(patience, topic+" is read to its end", func() bool {
			ends, err := admin.ListEndOffsets(o.t.Context(), topic)
			if err != nil || ends.Error() != nil {
				return false
			}
			var total int64
			ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
			return o.ledger.Read(topic) >= total
		})
	}
	return tr.far
}
