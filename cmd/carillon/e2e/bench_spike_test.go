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
	const rounds, lead = 4, 20 * time.Second
	for _, messages := range []int{50_000, 200_000} {
		b.Run(fmt.Sprint(messages), func(b *testing.B) {
			k := startKafka(b, freeAddrs(b, 1)...)
			k.create(benchPartitions, "raw", delayTopic, targetTopic)
			producer := k.client(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
				kgo.MaxBufferedRecords(messages))
			c := startCarillon(b, k.addrs(), dirs(b, 1)...)
			for _, topic := range []string{"raw", targetTopic} {
				var took, kafka, carillon []time.Duration
				for range rounds {
					finish := measure(k, topic, messages)
					due := time.Now()
					if topic == targetTopic {
						due = due.Add(lead)
					}
					load := []*process{k.brokers[0].process, c.nodes[0].process}
					before := ticksOf(b, load)
					spike(b, producer, topic, messages, due)
					if topic == targetTopic {
						c.awaitPending(patience, uint64(messages))
						<-time.After(time.Until(due) - 100*time.Millisecond)
						before = ticksOf(b, load)
					}
					took = append(took, slices.Max(finish()))
					after := ticksOf(b, load)
					kafka, carillon = append(kafka, after[0]-before[0]), append(carillon, after[1]-before[1])
				}
				b.Logf("%-6s took %v; processor time of Kafka %v, of Carillon %v", topic, took, kafka, carillon)
				b.ReportMetric(slices.Min(took[1:]).Seconds(), topic+"-least-s")
				b.ReportMetric(slices.Max(took[1:]).Seconds(), topic+"-most-s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// ticksOf returns the processor time of processes so far.
func ticksOf(b *testing.B, processes []*process) (spent []time.Duration) {
	for _, p := range processes {
		spent = append(spent, time.Duration(p.ticks(b))*time.Second/100)
	}
	return spent
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
