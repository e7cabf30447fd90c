package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// BenchmarkAcceptIDs prints how many records, waiting in a delay topic of real Kafka, become committed
// and fsynced messages per second on one node when each has an id of its own, beside as many without: in
// turn, three times each, each time with a new node.
func BenchmarkAcceptIDs(b *testing.B) {
	const messages, rounds = 400_000, 3
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			k := startKafka(b, freeAddrs(b, 1)...)
			k.create(benchPartitions, delayTopic, targetTopic)
			var took [2]time.Duration
			var accepted, ticks [2]float64
			for round := range 2 * rounds {
				with := round % 2
				k.fill(b, messages, size, with == 1)
				c := newCarillon(b, k.addrs(), dirs(b, 1)...)
				c.launch()
				// From the first count that is seen, since starting is not what is measured.
				var already uint64
				await(b, patience, "the first messages are accepted", func() bool {
					already, _ = c.pending()
					return already > 0
				})
				from, busy := time.Now(), c.nodes[0].process.ticks(b)
				c.awaitPending(3*patience, messages)
				took[with] += time.Since(from)
				ticks[with] += float64(c.nodes[0].process.ticks(b) - busy)
				accepted[with] += messages - float64(already)
				b.Logf("with ids %d: %d were accepted before the first look, %d in %v", with, already, messages-already, time.Since(from))
				c.kill()
				k.empty(delayTopic)
			}
			without, with := accepted[0]/took[0].Seconds(), accepted[1]/took[1].Seconds()
			b.ReportMetric(without, "without/s")
			b.ReportMetric(with, "with/s")
			b.ReportMetric(with/without, "with/without")
			b.ReportMetric(ticks[0]/ticksPerSecond*1e6/accepted[0], "cpu-us-without")
			b.ReportMetric(ticks[1]/ticksPerSecond*1e6/accepted[1], "cpu-us-with")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill produces messages for tomorrow, each with an id of 18 bytes if that is wanted.
func (k *kafkaCluster) fill(b *testing.B, messages, size int, ids bool) {
	b.Helper()
	producer := k.client(kgo.MaxBufferedRecords(messages), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
	value := make([]byte, size)
	for number := range messages {
		record := &kgo.Record{Topic: delayTopic, Value: value, Headers: []kgo.RecordHeader{
			{Key: client.HeaderAt, Value: strconv.AppendInt(nil, tomorrow+int64(number), 10)},
		}}
		if ids {
			id := fmt.Appendf(nil, "order-%012d", number)
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: client.HeaderID, Value: id})
		}
		producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Errorf("produce: %v", err)
			}
		})
	}
	if err := producer.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}
