package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// BenchmarkOutage prints how long it takes, from the moment when a Kafka that was frozen goes on, until 400,000 messages of 100 B
// for a thousand topics are out, which came due meanwhile, and beside it how long the same Kafka takes for as many records with
// the same headers that a bare producer writes to the same topics: one that sends to a Kafka that is well, and one that has had
// them since Kafka was frozen for as long, for a Kafka that goes on has much to do with itself. In turn, three times, after three
// of the bare producer and an outage that are not counted. Kafka, node and producer share the machine's cores.
func BenchmarkOutage(b *testing.B) {
	const messages, targets, lead, away = 400_000, 1_000, time.Minute, 10 * time.Second
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, delayTopic)
	var names []string
	for i := range targets {
		names = append(names, fmt.Sprintf("target-%04d", i))
	}
	k.create(1, names...)
	producer := k.client(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(messages))
	node := startCarillon(b, k.addrs(), dirs(b, 1)...)
	load := []*process{k.brokers[0].process, node.nodes[0].process}
	sendAll := func(record func(target string, i int) *kgo.Record) {
		for i := range messages {
			producer.Produce(b.Context(), record(names[i%targets], i), func(_ *kgo.Record, err error) {
				if err != nil {
					b.Errorf("produce: %v", err)
				}
			})
		}
	}
	flush := func() {
		if err := producer.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	timed := func(name string, run func()) time.Duration {
		began, before, ours := time.Now(), ticksOf(b, load), ownTime(b)
		run()
		took := time.Since(began)
		b.Logf("%-8s %v; processor time of Kafka and node %v, of this process %v", name, took.Round(time.Millisecond),
			each(ticksOf(b, load), before, 1), (ownTime(b) - ours).Round(time.Millisecond))
		return took
	}
	freeze := func() { k.brokers[0].process.send(syscall.SIGSTOP) }
	thaw := func() { k.brokers[0].process.send(syscall.SIGCONT) }
	send := func() {
		sendAll(func(target string, i int) *kgo.Record {
			return &kgo.Record{Topic: target, Value: make([]byte, 100), Headers: []kgo.RecordHeader{
				{Key: client.HeaderDeliveredID, Value: fmt.Appendf(nil, "%s/7/%d", delayTopic, i)},
				{Key: client.HeaderDeliveredFor, Value: fmt.Append(nil, time.Now().UnixMilli())},
				{Key: client.HeaderDeliveredFrom, Value: fmt.Appendf(nil, "%s/7/%d", delayTopic, i)},
				{Key: client.HeaderDeliveredSeq, Value: fmt.Appendf(nil, "%032x/%d", 1, i)},
			}}
		})
	}
	bare := func() {
		send()
		flush()
	}
	bareOutage := func() time.Duration {
		freeze()
		over := time.After(away)
		send()
		<-over
		return timed("frozen", func() {
			thaw()
			flush()
		})
	}
	outage := func() time.Duration {
		due := time.Now().Add(lead)
		sendAll(func(target string, _ int) *kgo.Record {
			return &kgo.Record{Topic: delayTopic, Value: make([]byte, 100), Headers: []kgo.RecordHeader{
				{Key: client.HeaderTo, Value: []byte(target)},
				{Key: client.HeaderAt, Value: fmt.Append(nil, due.UnixMilli())},
			}}
		})
		flush()
		node.awaitPending(time.Until(due)-time.Second, messages)
		<-time.After(time.Until(due) - time.Second)
		freeze()
		<-time.After(time.Until(due) + away)
		return timed("carillon", func() {
			thaw()
			began := time.Now()
			for left := uint64(messages); left > 0; {
				if time.Since(began) > time.Minute {
					b.Fatal("not delivered within a minute")
				}
				// In proportion to what is out, after half of what the rest takes: to ask fifty times a second is a tenth of the node's time.
				rest := time.Since(began) * time.Duration(left) / time.Duration(messages-left+1)
				<-time.After(min(max(rest/2, 10*time.Millisecond), time.Second/2))
				if pending, ok := node.pending(); ok {
					left = pending
				}
			}
		})
	}
	for range 3 { // Kafka is slow under a load that it has not seen
		bare()
	}
	outage() // likewise, and so is the node
	for range 3 {
		well, frozen := timed("bare", bare), bareOutage()
		took := outage()
		b.Logf("%.2f times as long as the bare producer, %.2f times as long as it after an outage", took.Seconds()/well.Seconds(), took.Seconds()/frozen.Seconds())
	}
	b.ReportMetric(0, "ns/op")
}
