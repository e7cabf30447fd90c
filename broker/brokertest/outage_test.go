package brokertest

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/client"
)

// BenchmarkOutage prints how fast 400,000 messages of 100 B for a thousand targets, which came due
// while Kafka did not answer, go out when it does, and beside it how fast a bare producer then sends
// as many records to the same topics. kfake, node and producer share the process.
//
//	go test -run xxx -bench Outage -benchtime 1x -v ./broker/brokertest
func BenchmarkOutage(b *testing.B) {
	for range b.N {
		outage(b)
	}
}

func outage(b *testing.B) {
	const messages, away = 400_000, 10 * time.Second
	k := newCountedKafka(b, existing, net.Listen, new(net.Dialer).DialContext)
	defer k.Close()
	due := time.Now().Add(40 * time.Second)
	k.produceAll(messages, func(i int) *kgo.Record {
		return &kgo.Record{Topic: delayOfNames, Partition: int32(i % 12), Value: make([]byte, 100), Headers: []kgo.RecordHeader{
			{Key: client.HeaderTo, Value: []byte(nameOf(i % existing))},
			{Key: client.HeaderAt, Value: fmt.Append(nil, due.UnixMilli())},
		}}
	})
	late := new(lateness)
	node, stop := k.serve(late)
	for node.Store().State().Pending < messages {
		if time.Now().After(due) {
			b.Fatalf("%d of %d messages were accepted in time", node.Store().State().Pending, messages)
		}
		<-time.After(10 * time.Millisecond)
	}
	thaw := k.freeze(kmsg.Produce)
	<-time.After(time.Until(due.Add(away)))
	parked := len(node.Store().Holds())
	thaw()
	from := time.Now()
	for node.Store().State().Pending > 0 {
		<-time.After(10 * time.Millisecond)
	}
	carillon := messages / time.Since(from).Seconds()
	stop()
	from = time.Now()
	k.produceAll(messages, func(i int) *kgo.Record {
		return &kgo.Record{Topic: nameOf(i % existing), Value: make([]byte, 100), Headers: []kgo.RecordHeader{
			{Key: client.HeaderDeliveredID, Value: fmt.Appendf(nil, "%s/7/%d", delayOfNames, i)},
			{Key: client.HeaderDeliveredFor, Value: fmt.Append(nil, due.UnixMilli())},
			{Key: client.HeaderDeliveredFrom, Value: fmt.Appendf(nil, "%s/7/%d", delayOfNames, i)},
			{Key: client.HeaderDeliveredSeq, Value: fmt.Appendf(nil, "%032x/%d", 1, i)},
		}}
	})
	bare := messages / time.Since(from).Seconds()
	b.Logf("%d targets were parked", parked)
	b.ReportMetric(carillon, "carillon/s")
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(bare/carillon, "bare/carillon")
	b.ReportMetric(0, "ns/op")
}

// All targets are tried soon after Kafka answers again, however long it did not: no message waits for a
// connection that is free, or for the turn of its target. What it may wait for is a second: a Kafka
// client whose requests were not answered pauses that long, every eight seconds of such an outage.
func TestOutage_endsForAllTargetsWhenKafkaAnswers(t *testing.T) {
	for _, c := range []struct {
		outage string
		away   time.Duration
		most   time.Duration // from Kafka's first answer to the last Ack
	}{
		{"records", 12300 * time.Millisecond, 500 * time.Millisecond},
		{"records", 125 * time.Second, 1500 * time.Millisecond},
		{"records", 120500 * time.Millisecond, 1500 * time.Millisecond}, // at the start of such a pause
		{"all", 33 * time.Second, 2500 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s/%v", c.outage, c.away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				links := newNetwork()
				k := newCountedKafka(t, existing, links.listen(kafkaHost), links.dial("node"))
				defer k.Close()
				k.now = time.Now // virtual
				due := time.Now().Add(30 * time.Second)
				const targets = 200
				k.produceAll(5*targets, func(i int) *kgo.Record {
					at := due
					if i < targets {
						at = at.Add(-20 * time.Second) // one each of what Kafka takes
					}
					return &kgo.Record{Topic: delayOfNames, Partition: int32(i % 12), Headers: []kgo.RecordHeader{
						{Key: client.HeaderTo, Value: []byte(nameOf(i % targets))},
						{Key: client.HeaderAt, Value: fmt.Append(nil, at.UnixMilli())},
					}}
				})
				node, stop := k.serve(new(lateness))
				defer stop()
				time.Sleep(time.Until(due.Add(-100 * time.Millisecond)))
				thaw := func() { links.set(open, "node", kafkaHost) }
				if c.outage == "all" {
					links.set(silent, "node", kafkaHost)
				} else {
					thaw = k.freeze(kmsg.Produce)
				}
				time.Sleep(time.Until(due.Add(c.away)))
				if pending := node.Store().State().Pending; pending != 4*targets {
					t.Errorf("%d messages wait, want %d", pending, 4*targets)
				}
				thaw()
				from := time.Now()
				for node.Store().State().Pending > 0 && time.Since(from) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(from); took > c.most {
					t.Errorf("the last went out %v after Kafka answered, want %v at most", took, c.most)
				}
			})
		})
	}
}

// freeze has Kafka not answer requests of that kind until thaw is called.
func (k *countedKafka) freeze(kind kmsg.Key) (thaw func()) {
	released := make(chan struct{})
	k.gate.Hold(func(request kafkatest.Request) {
		if request.Key() == kind.Int16() {
			<-released
		}
	})
	return func() {
		k.gate.Hold(nil)
		close(released)
	}
}

// produceAll has a client of its own send n records, and waits until Kafka has them.
func (k *countedKafka) produceAll(n int, record func(i int) *kgo.Record) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.Dialer(k.dial), kgo.MaxBufferedRecords(n),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		k.t.Fatal(err)
	}
	defer producer.Close()
	for i := range n {
		producer.Produce(k.t.Context(), record(i), func(_ *kgo.Record, err error) {
			if err != nil {
				k.t.Errorf("produce: %v", err)
			}
		})
	}
	if err := producer.Flush(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}
