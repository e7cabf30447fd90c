package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkSpike prints how long it takes until the last of many messages of 100 B, all due at the
// same millisecond, is in the hands of a consumer, and beside it how long the same Kafka takes for
// as many that a plain producer is given at once. The first round of each warms Kafka up.
func BenchmarkSpike(b *testing.B) {
	const rounds = 4
	for _, messages := range []int{50_000, 200_000} {
		b.Run(fmt.Sprint(messages), func(b *testing.B) {
			k := startKafka(b, freeAddrs(b, 1)...)
			k.create(benchPartitions, "raw", delayTopic, targetTopic)
			producer := k.client(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
				kgo.MaxBufferedRecords(messages))
			c := startCarillon(b, k.addrs(), dirs(b, 1)...)
			for _, topic := range []string{"raw", targetTopic} {
				var took []time.Duration
				for range rounds {
					finish := measure(k, topic, messages)
					due := time.Now()
					if topic == targetTopic {
						due = due.Add(10 * time.Second)
					}
					spike(b, producer, topic, messages, due)
					if topic == targetTopic {
						c.awaitPending(patience, uint64(messages))
					}
					took = append(took, slices.Max(finish()))
				}
				b.Logf("%s: %v", topic, took)
				b.ReportMetric(slices.Min(took[1:]).Seconds(), topic+"-least-s")
				b.ReportMetric(slices.Max(took[1:]).Seconds(), topic+"-most-s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// spike hands over messages that are all due at one time.
func spike(b *testing.B, producer *kgo.Client, topic string, messages int, due time.Time) {
	to := topic
	if topic == targetTopic {
		to = delayTopic
	}
	for range messages {
		producer.Produce(b.Context(), &kgo.Record{
			Topic: to, Value: make([]byte, 100), Headers: []kgo.RecordHeader{dueHeader(to, due)},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Errorf("produce to %s: %v", to, err)
			}
		})
	}
}
