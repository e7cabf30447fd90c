package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// Benchmarks are run once each, with the processes sharing the machine's cores:
//
//	make bench

const benchPartitions = 12

// BenchmarkAccept prints how many records of 1 KB, waiting in a delay topic of real Kafka, become
// committed and fsynced messages per second.
func BenchmarkAccept(b *testing.B) {
	const messages = 300_000
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			k := startKafka(b, freeAddrs(b, 1)...)
			k.create(benchPartitions, delayTopic, targetTopic)
			producer := k.client(kgo.MaxBufferedRecords(messages), kgo.ProducerBatchCompression(kgo.NoCompression()))
			tomorrow := time.Now().Add(24 * time.Hour)
			for number := range messages {
				produce(b, producer, delayTopic, tomorrow.Add(time.Duration(number)*time.Millisecond))
			}
			if err := producer.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			c := newCarillon(b, k.addrs(), dirs(b, nodes)...)
			c.launch()
			// From the first count that is seen, since starting is not what is measured.
			var already uint64
			await(b, patience, "the first messages are accepted", func() bool {
				already, _ = c.pending()
				return already > 0
			})
			from := time.Now()
			c.awaitPending(3*patience, messages)
			b.Logf("%d were accepted before the first look, %d in %v", already, messages-already, time.Since(from))
			rate := float64(messages-already) / time.Since(from).Seconds()
			b.ReportMetric(rate, "accepted/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkLateness prints how long after its due time a message of 1 KB is in the hands of a
// consumer at 10,000 a second, and beside it how long the same Kafka takes from a plain produce to
// consume. Preloaded messages were all accepted before the first was due; steady ones are accepted
// at the same rate while others are delivered. Kafka is slow for the first seconds of a load that
// it has not seen yet, so that each kind of load has its warm-up.
func BenchmarkLateness(b *testing.B) {
	const rate, seconds = 10_000, 15
	const messages = rate * seconds
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, "raw", delayTopic, targetTopic)
	producer := k.client(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression())) // as Carillon
	c := startCarillon(b, k.addrs(), dirs(b, 1)...)

	raw := func(name string) {
		finish := measure(k, "raw", messages)
		pace(rate, messages, func() { produce(b, producer, "raw", time.Now()) })
		report(b, name, finish())
	}
	steady := func(name string) {
		finish := measure(k, targetTopic, messages)
		pace(rate, messages, func() { produce(b, producer, delayTopic, time.Now().Add(2*time.Second)) })
		report(b, name, finish())
	}
	preloaded := func(name string) {
		finish := measure(k, targetTopic, messages)
		start := time.Now().Add(25 * time.Second)
		for number := range messages {
			produce(b, producer, delayTopic, start.Add(time.Duration(number)*time.Second/rate))
		}
		c.awaitPending(patience, messages)
		report(b, name, finish())
	}
	raw("raw-warm-up")
	steady("warm-up")
	raw("raw")
	preloaded("preloaded")
	steady("steady")
	b.ReportMetric(0, "ns/op")
}

// produce hands a record of 1 KB to the client. On a delay topic it is for the given time.
func produce(b *testing.B, producer *kgo.Client, topic string, due time.Time) {
	producer.Produce(context.Background(), &kgo.Record{
		Topic: topic, Value: make([]byte, 1000), Timestamp: time.Now(),
		Headers: []kgo.RecordHeader{dueHeader(topic, due)},
	}, func(_ *kgo.Record, err error) {
		if err != nil {
			b.Errorf("produce to %s: %v", topic, err)
		}
	})
}

// producedAt is when a record that is not for Carillon was produced, in epoch microseconds: whole
// milliseconds would add half of one to what Kafka takes.
const producedAt = "produced-at"

// dueHeader is what the consumer, of whichever topic, will measure from.
func dueHeader(topic string, due time.Time) kgo.RecordHeader {
	if topic == delayTopic {
		return kgo.RecordHeader{Key: client.HeaderAt, Value: strconv.AppendInt(nil, due.UnixMilli(), 10)}
	}
	return kgo.RecordHeader{Key: producedAt, Value: strconv.AppendInt(nil, due.UnixMicro(), 10)}
}

// pace calls f n times, evenly at the given rate per second; what the clock skips is caught up.
func pace(rate, n int, f func()) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for done := 0; done < n; <-tick.C {
		for due := min(n, int(time.Since(start).Seconds()*float64(rate))); done < due; done++ {
			f()
		}
	}
}

// measure consumes the next n records of a topic; finish waits for them and returns how long after
// its due time each was consumed.
func measure(k *kafkaCluster, topic string, n int) (finish func() []time.Duration) {
	lateness := make([]time.Duration, 0, n)
	wait := consume(k, topic, n, func(_ time.Time, late time.Duration) { lateness = append(lateness, late) })
	return func() []time.Duration { wait(); return lateness }
}

// mostSilent is how long no message may come while some are awaited. Kafka may have deleted what a node that falls behind has
// not read yet.
const mostSilent = 2 * time.Minute

// consume tells take of each of the next n records of a topic when it was consumed, and how long after its due
// time. wait returns when all were, or when none came for mostSilent, which is an error.
func consume(k *kafkaCluster, topic string, n int, take func(now time.Time, late time.Duration)) (wait func()) {
	ends, err := kadm.NewClient(k.client()).ListEndOffsets(k.t.Context(), topic)
	if err != nil {
		k.t.Fatal(err)
	}
	consumer := k.client(kgo.ConsumePartitions(ends.KOffsets()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for left := n; left > 0 && k.t.Context().Err() == nil; {
			polling, end := context.WithTimeout(k.t.Context(), mostSilent)
			fetches := consumer.PollFetches(polling)
			end()
			now := time.Now()
			if fetches.Empty() && polling.Err() == context.DeadlineExceeded {
				k.t.Errorf("%d of %d messages for %s have not come, and none did for %v", left, n, topic, mostSilent)
				break
			}
			fetches.EachRecord(func(r *kgo.Record) {
				for _, h := range r.Headers {
					due, _ := strconv.ParseInt(string(h.Value), 10, 64) // a wrong one shows as years
					switch h.Key {
					case client.HeaderDeliveredFor:
						take(now, now.Sub(time.UnixMilli(due)))
						left--
					case producedAt:
						take(now, now.Sub(time.UnixMicro(due)))
						left--
					}
				}
			})
		}
		consumer.Close()
	}()
	return func() { <-done }
}

func report(b *testing.B, name string, lateness []time.Duration) {
	slices.Sort(lateness)
	at := func(share float64) float64 {
		return lateness[int(share*float64(len(lateness)-1))].Seconds() * 1000
	}
	b.Logf("%-11s p50 %6.1f ms, p99 %6.1f ms, max %6.1f ms of %d", name, at(0.5), at(0.99), at(1), len(lateness))
	b.ReportMetric(at(0.5), name+"-p50-ms")
	b.ReportMetric(at(0.99), name+"-p99-ms")
}
