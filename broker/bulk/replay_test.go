package bulk

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
)

// A stock is a fixture beside a Kafka with a dead-letter topic of three partitions.
type stock struct {
	*fixture
	freezer *kafkatest.Freezer // between the desk and Kafka
	brokers []string
	network *kfake.VirtualNetwork
	past    *pastKafka
	kafka   *kgo.Client
	admin   *kadm.Client
}

const letterTopic = "carillon.dead-letter"

// A pastKafka is asked at a broker that was frozen: it tells of the topic that was there before.
type pastKafka struct {
	deadletter.Kafka
	lies atomic.Int64 // so many answers
}

func (k *pastKafka) Partitions(ctx context.Context, topics []string, since int64) ([]deadletter.Partition, error) {
	all, err := k.Kafka.Partitions(ctx, topics, since)
	if k.lies.Add(-1) >= 0 {
		for i := range all {
			all[i].TopicID = [16]byte{1}
		}
	}
	return all, err
}

func atStock(t *testing.T, test func(t *testing.T, s *stock)) {
	t.Helper()
	kafkatest.InBubble(t, func(t *testing.T, bubble kafkatest.Bubble) {
		f, end := open(t)
		defer end()
		s := &stock{fixture: f, freezer: kafkatest.NewFreezer(bubble.Network.DialContext), brokers: bubble.ListenAddrs(), network: bubble.Network}
		letters, err := kafka.NewLetters(reach.Config{Kafka: config.Kafka{Brokers: s.brokers}, Logger: slog.New(slog.DiscardHandler), Dial: s.freezer.Dial})
		if err != nil {
			t.Fatal(err)
		}
		s.past = &pastKafka{Kafka: letters}
		s.Letters = deadletter.New(deadletter.Options{
			Kafka: s.past, Store: f.node.Store(), Topics: []string{letterTopic}, Now: time.Now,
			TargetOf: func(topic string) string { return strings.TrimSuffix(topic, ".delay") },
		})
		s.create()
		defer func() { s.kafka.Close() }()
		test(t, s)
	})
}

// create makes the topic, with clients that know no other one of its name.
func (s *stock) create() {
	s.t.Helper()
	var err error
	if s.kafka, err = kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.Dialer(s.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		s.t.Fatal(err)
	}
	s.admin = kadm.NewClient(s.kafka)
	if _, err := s.admin.CreateTopic(s.t.Context(), 3, 1, nil, letterTopic); err != nil {
		s.t.Fatal(err)
	}
}

// bury writes count dead letters of a delay topic, NAME NUMBER, each to the partition of its number modulo 3.
func (s *stock) bury(topic, name string, count int, headers ...message.Header) {
	s.t.Helper()
	var records []*kgo.Record
	for i := range count {
		m := message.Message{Origin: message.Origin{Topic: topic, Offset: int64(i)}, Key: []byte("k"), Value: fmt.Appendf(nil, "%s %d", name, i), Headers: headers}
		dead := m.AsDeadLetter(message.Problem{Code: "target-missing", Message: "why"}, 0)
		record := &kgo.Record{Topic: letterTopic, Partition: int32(i % 3), Key: dead.Key, Value: dead.Value, Timestamp: time.Now()}
		for _, h := range dead.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader(h))
		}
		records = append(records, record)
	}
	s.produce(records...)
}

func (s *stock) produce(records ...*kgo.Record) {
	s.t.Helper()
	if err := s.kafka.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// forget has Kafka delete what lies before the offset of a partition.
func (s *stock) forget(partition int32, before int64) {
	s.t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: letterTopic, Partition: partition, At: before})
	if _, err := s.admin.DeleteRecords(s.t.Context(), offsets); err != nil {
		s.t.Fatal(err)
	}
}

// values returns what waits for a target, sorted, once each time that it does.
func (s *stock) values(target string) (values []string) {
	s.t.Helper()
	for _, w := range s.pending() {
		if w.target == target {
			values = append(values, w.value)
		}
	}
	slices.Sort(values)
	return values
}

func replayOf(f client.Filter) client.OperationRequest {
	return client.OperationRequest{Verb: client.OperationReplay, Filter: f, Reason: "r"}
}

// Thousands, in windows and steps, and what comes after the start stays.
func TestReplay_schedulesWhatTheFilterMeansAndNothingThatComesLater(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.bury("orders.delay", "a", 4500)
		s.bury("bills.delay", "b", 30)
		o := s.start(replayOf(client.Filter{Topic: "orders.delay"}))
		if o.Matched != 4500 || o.Within != 0 || o.State != client.OperationRunning || o.Verb != client.OperationReplay {
			t.Errorf("started %+v", o)
		}
		s.bury("orders.delay", "later", 10)
		s.pass(time.Minute) // the time is fixed
		end := s.lead()
		s.expect(s.ended("1"), 4500, 0, 0, 0)
		end()
		got := s.pending()
		seen := map[string]bool{}
		for _, w := range got {
			if w.due != o.Started || w.target != "orders" || !strings.HasPrefix(w.value, "a ") || seen[w.value] {
				t.Fatalf("%+v waits", w)
			}
			seen[w.value] = true
		}
		if len(got) != 4500 || s.counts.By["scheduled"] != 4500 || s.counts.Taken != 4500 {
			t.Errorf("%d wait, counted %+v", len(got), s.counts)
		}
		s.start(replayOf(client.Filter{Topic: "orders.delay"}))
		defer s.lead()()
		second := s.ended("2")
		if s.expect(second, 10, 4500, 0, 0); second.Matched != 10 {
			t.Errorf("the second one: %+v", second)
		}
	})
}

func TestReplay_countsFatesApart(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.bury("orders.delay", "a", 30)
		s.bury("orders.delay", "secret", 3, message.Header{Key: "deliver-to", Value: []byte("secrets")})
		s.bury("orders.delay", "id", 3, message.Header{Key: "deliver-id", Value: []byte("taken")})
		s.produce(&kgo.Record{Topic: letterTopic, Value: []byte("mine")})
		all := replayOf(client.Filter{})
		all.All = true
		o := s.start(all)
		if o.Matched != 36 {
			t.Errorf("started %+v", o)
		}
		s.forget(1, 4) // a 1, a 4, a 7, a 10
		end := s.lead()
		o = s.ended("1")
		end()
		s.expect(o, 26+1, 0, 4, 3+2+1)
		if got := s.values("orders"); len(got) != 27 || slices.Contains(got, "a 10") || !slices.Contains(got, "a 13") || !slices.Contains(got, "id 0") {
			t.Errorf("%q wait", got)
		}
		if len(s.values("secrets")) != 0 || !strings.Contains(o.Problem, "dead letter") {
			t.Errorf("%q wait, problem %q", s.values("secrets"), o.Problem)
		}
		// Again, and elsewhere.
		again := replayOf(client.Filter{Target: "secrets"})
		again.Change = &client.BulkChange{DeliverTo: "parcels", DeliverAfter: "1h"}
		s.start(again)
		defer s.lead()()
		s.expect(s.ended("2"), 3, 0, 0, 0)
		again.Again = true
		if o := s.start(again); !o.Again || o.Matched != 3 || o.Change.DeliverAfter != "" || o.Change.DeliverAt == "" {
			t.Errorf("started %+v", o)
		}
		s.expect(s.ended("3"), 3, 0, 0, 0)
		if got := s.values("parcels"); !slices.Equal(got, []string{"secret 0", "secret 0", "secret 1", "secret 1", "secret 2", "secret 2"}) {
			t.Errorf("%q wait", got)
		}
	})
}

// What is told of the message that waits is the log's word, as is that a replay of one came between.
func TestReplay_tellsWhatWaitsUnderTheID(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.put("orders.delay", "orders", "a", 1)
		s.bury("orders.delay", "id", 1, message.Header{Key: "deliver-id", Value: []byte("a-0")})
		s.start(replayOf(client.Filter{Topic: "orders.delay"}))
		defer s.lead()()
		o := s.ended("1")
		s.expect(o, 0, 0, 0, 1)
		if want := "dead letter 0/0: message 1 waits under its id, which it would replace: cancel that first"; o.Problem != want {
			t.Errorf("problem %q", o.Problem)
		}
	})
}

// A Kafka that does not answer holds up the replay alone, which says so, and goes on behind it.
func TestReplay_waitsForKafkaAndHoldsUpNoOther(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.bury("orders.delay", "a", 90)
		s.put("b.delay", "bills", "b", 50)
		s.start(replayOf(client.Filter{Code: "target-missing"}))
		s.freezer.Freeze(s.brokers...)
		defer s.lead()()
		s.pass(30 * time.Second)
		s.start(client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "b.delay"}, Reason: "r"})
		begun := time.Now()
		s.expect(s.ended("2"), 50, 0, 0, 0)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the other one took %v", took)
		}
		if o := s.Local().Operations[1]; o.State != client.OperationRunning || o.Done != 0 || !strings.HasPrefix(o.Problem, "it waits: look for carillon.dead-letter/0: kafka does not give it") {
			t.Errorf("it is told as %+v", o)
		}
		if _, err := s.Start(t.Context(), replayOf(client.Filter{Code: "x"}), "ann", ""); err == nil || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("another one: %v", err)
		}
		s.freezer.Freeze()
		o := s.ended("1")
		if s.expect(o, 90, 0, 0, 0); o.Problem != "" {
			t.Errorf("problem %q", o.Problem)
		}
	})
}

// A topic that is not there is waited for; one that was made anew under its name is another.
func TestReplay_takesForGoneWhatCannotComeBack(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.bury("orders.delay", "a", 30)
		s.start(replayOf(client.Filter{Code: "target-missing"}))
		if _, err := s.admin.DeleteTopic(t.Context(), letterTopic); err != nil {
			t.Fatal(err)
		}
		defer s.lead()()
		s.pass(time.Minute)
		if o, err := s.Get(t.Context(), "1"); err != nil || o.State != client.OperationRunning || !strings.Contains(o.Problem, "does not exist") || o.NotFound != 0 {
			t.Errorf("without the topic: %+v, %v", o, err)
		}
		s.kafka.Close()
		s.create()
		s.bury("orders.delay", "anew", 30)
		s.expect(s.ended("1"), 0, 0, 30, 0)
		if got := s.pending(); len(got) != 0 {
			t.Errorf("%v wait", got)
		}
	})
}

// An answer or two from before the topic was made prove nothing.
func TestReplay_takesForGoneWhatAllAnswersSayIs(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.bury("orders.delay", "a", 30)
		s.start(replayOf(client.Filter{Code: "target-missing"}))
		s.past.lies.Store(2)
		defer s.lead()()
		s.expect(s.ended("1"), 30, 0, 0, 0)
	})
}

func TestReplay_keepsItsRateAndStops(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.bury("orders.delay", "a", 300)
		r := replayOf(client.Filter{Topic: "orders.delay"})
		r.Rate = 20
		s.start(r)
		end := s.lead()
		s.pass(5 * time.Second)
		end() // the next term goes on from there
		s.pass(time.Minute)
		defer s.lead()()
		s.pass(5 * time.Second)
		o, err := s.Stop(t.Context(), "1", "bob", "enough")
		if err != nil || o.State != client.OperationStopped || o.Done < 190 || o.Done > 210 || o.Problem != "stopped by bob: enough" {
			t.Errorf("stopped as %+v, %v", o, err)
		}
		s.pass(time.Minute)
		if got := s.values("orders"); len(got) != int(o.Done) || len(slices.Compact(got)) != int(o.Done) {
			t.Errorf("%d wait, %d are done", len(got), o.Done)
		}
	})
}

// A dry run looks at so much, and tells how much it has not looked at.
func TestReplay_countsForSoLongOnly(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		const many = 3 * 24_000
		records := make([]*kgo.Record, many)
		for i := range records {
			records[i] = &kgo.Record{Topic: letterTopic, Partition: int32(i % 3), Value: []byte("mine")}
		}
		s.produce(records...)
		s.bury("orders.delay", "a", 30)
		r := replayOf(client.Filter{From: time.Now().Add(-time.Hour).UnixMilli()})
		r.DryRun = true
		o := s.start(r)
		if o.Within == 0 || o.Within >= many || o.Matched > 30 || o.ID != "" || len(s.Local().Operations) != 0 {
			t.Errorf("%+v", o)
		}
		if seen := many + 30 - o.Within; seen > mostCountedWindows*1024 {
			t.Errorf("%d were looked at", seen)
		}
	})
}

// Whoever started it held a time right that was days ahead, and is found to have been.
func TestReplay_isDueNoLaterThanItIsByTheClock(t *testing.T) {
	atStock(t, func(t *testing.T, s *stock) {
		s.put("a.delay", "orders", "a", 1)
		s.bury("orders.delay", "dead", 3)
		right := time.Now().Add(-50 * time.Hour)
		s.Due = func() time.Time { return right }
		s.start(client.OperationRequest{Verb: client.OperationNow, Filter: client.Filter{Prefix: "a-"}, Reason: "r"})
		s.start(replayOf(client.Filter{Topic: "orders.delay"}))
		defer s.lead()()
		s.ended("1")
		s.ended("2")
		late := 0
		for _, w := range s.pending() {
			if w.due > right.UnixMilli() {
				late++
			}
		}
		if got := len(s.pending()); got < 4 || late > got-4 {
			t.Errorf("of %d messages %d are due later than %v: %+v", got, late, right, s.pending())
		}
	})
}
