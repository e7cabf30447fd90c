package e2e

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// throughTrial and throughProof are how long a rate has to be kept up: while it is
	// looked for, and in the end. A trial is longer than what Kafka and the page cache
	// swallow; the proof is long enough for the kernel to write back.
	throughTrial = 20 * time.Second
	throughProof = 5 * time.Minute
	// throughLate is where p99 shows that a rate is not kept up, in the last quarter of
	// the time: a queue that grows passes it within seconds.
	throughLate = time.Second
)

// BenchmarkThrough prints the highest rate at which messages of 100 B go in and out of one node at
// the same time, for five minutes, and beside it the most that a bare loop of consume and produce
// passes on through the same Kafka. Both are fed and read by the same producer and consumer.
//
// All share the machine's cores, so each run also prints the processor time that Kafka, the node, and
// this process with producer, consumer and bare loop take for a message: where no core is idle, the rates
// of two are as the sums of these.
func BenchmarkThrough(b *testing.B) {
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, "raw.in", "raw", delayTopic, targetTopic)
	producer := k.client(kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(1<<20))
	load := []*process{k.brokers[0].process}
	run := func(in, out string, rate int, span time.Duration) (late time.Duration) {
		n := int(float64(rate) * span.Seconds())
		finish := measure(k, out, n)
		began, before, ours := time.Now(), ticksOf(b, load), ownTime(b)
		pace(rate, n, func() { producer.Produce(context.Background(), through(in), nil) })
		lateness := finish()
		b.Logf("%d in %v; processor time of one: this process %v, Kafka and node %v", n, time.Since(began).Round(time.Millisecond),
			(ownTime(b)-ours)/time.Duration(n), each(ticksOf(b, load), before, n))
		last := lateness[len(lateness)*3/4:]
		slices.Sort(last)
		return last[len(last)*99/100]
	}
	most := func(name, in, out string) float64 {
		run(in, out, 10_000, throughTrial) // Kafka is slow under a load that it has not seen
		keepsUp := func(rate int, span time.Duration) bool {
			late := run(in, out, rate, span)
			b.Logf("%-8s %6d/s for %v: p99 of the last quarter %v", name, rate, span, late)
			return late <= throughLate
		}
		rate := 10_000
		for _, step := range []float64{1.5, 1.15} {
			for next := int(step * float64(rate)); keepsUp(next, throughTrial); next = int(step * float64(rate)) {
				rate = next
			}
		}
		for !keepsUp(rate, throughProof) {
			rate = rate * 9 / 10
		}
		return float64(rate)
	}

	stop := passOn(b, k, "raw.in", "raw")
	bare := most("bare", "raw.in", "raw")
	stop()
	c := startCarillon(b, k.addrs(), dirs(b, 1)...)
	load = append(load, c.nodes[0].process)
	carillon := most("carillon", delayTopic, targetTopic)
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(carillon, "carillon/s")
	b.ReportMetric(carillon/bare, "of-bare")
	b.ReportMetric(0, "ns/op")
}

// each returns how much processor time the processes took for each of n messages.
func each(after, before []time.Duration, n int) (times []time.Duration) {
	for i := range after {
		times = append(times, (after[i]-before[i])/time.Duration(n))
	}
	return times
}

// ownTime returns the processor time of this process so far.
func ownTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// through is a record of 100 B that is due when it is produced.
func through(topic string) *kgo.Record {
	now := time.Now()
	return &kgo.Record{Topic: topic, Value: make([]byte, 100), Timestamp: now, Headers: []kgo.RecordHeader{dueHeader(topic, now)}}
}

// passOn consumes from one topic and produces to the other until stop is called.
func passOn(b *testing.B, k *kafkaCluster, from, to string) (stop func()) {
	client := k.client(kgo.ConsumeTopics(from), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1<<20))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				client.Produce(ctx, &kgo.Record{Topic: to, Value: r.Value, Headers: r.Headers}, nil)
			})
		}
	}()
	return func() { cancel(); <-done }
}
