package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
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
	f := newPassage(b, 100)
	run := func(in, out string, rate int, span time.Duration) (late time.Duration) {
		return lastLate(b, f.pass(in, out, rate, span))
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

	stop := passOn(b, f.kafka, "raw.in", "raw")
	bare := most("bare", "raw.in", "raw")
	stop()
	f.startNode()
	carillon := most("carillon", delayTopic, targetTopic)
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(carillon, "carillon/s")
	b.ReportMetric(carillon/bare, "of-bare")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSteadyThrough prints what a message of 100 B costs each process, at a rate that all can keep up, for
// the bare loop and for one node, and how late the latest were.
func BenchmarkSteadyThrough(b *testing.B) {
	const rate, span = 30_000, 12 * time.Second
	f := newPassage(b, 100)
	both := func(name, in, out string) {
		for range 2 { // Kafka is slow under a load that it has not seen
			late := lastLate(b, f.pass(in, out, rate, span))
			b.Logf("%s: p99 of the last quarter %v", name, late)
		}
	}
	stop := passOn(b, f.kafka, "raw.in", "raw")
	both("bare", "raw.in", "raw")
	stop()
	node := f.startNode()
	both("carillon", delayTopic, targetTopic)
	b.Logf("anonymous memory of the node %.0f MB", node.anonymousMB(b))
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRisingThrough prints how late the latest are at rates that rise, each for nine seconds, of the bare loop and of
// one node, until a rate is not kept up: in three minutes about how far each goes.
func BenchmarkRisingThrough(b *testing.B) {
	const span = 9 * time.Second
	for _, load := range []struct {
		size  int // bytes
		rates []int
	}{
		{100, []int{30_000, 60_000, 110_000, 150_000, 180_000, 200_000, 300_000, 400_000, 500_000}},
		{1_000, []int{10_000, 20_000, 30_000, 40_000, 60_000, 80_000, 100_000, 120_000, 150_000}},
	} {
		b.Run(fmt.Sprint(load.size), func(b *testing.B) {
			f := newPassage(b, load.size)
			rise := func(name, in, out string) {
				for _, rate := range load.rates {
					late := lastLate(b, f.pass(in, out, rate, span))
					b.Logf("%-8s %6d/s for %v: p99 of the last quarter %v", name, rate, span, late)
					if late > throughLate {
						return
					}
				}
			}
			stop := passOn(b, f.kafka, "raw.in", "raw")
			rise("bare", "raw.in", "raw")
			stop()
			f.startNode()
			rise("carillon", delayTopic, targetTopic)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkTracedThrough prints second by second how late messages are, of the bare loop and of one node, each at one rate
// for so long that the kernel writes back what Kafka has written, three times; and what one rate is of the other, if both
// are kept up. THROUGH=90000/5m/1000/150000 says the node's rate, and how long, how many bytes and the loop's rate, of which
// the last ones may be left out.
func BenchmarkTracedThrough(b *testing.B) {
	load := tracedLoad{rate: 150_000, span: 95 * time.Second, size: 100}
	if text := os.Getenv("THROUGH"); text != "" {
		if err := load.read(text); err != nil {
			b.Fatalf("THROUGH=%s: %v; write messages a second, how long, bytes and the loop's messages a second, as in 90000/5m/1000/150000", text, err)
		}
	}
	load.bare = cmp.Or(load.bare, load.rate)
	f := newPassage(b, load.size)
	kept := map[string]bool{}
	run := func(b *testing.B, name, in, out string, rate int) {
		for i := range 3 { // Kafka is slow under a load that it has not seen
			f.pass(in, out, (i+1)*rate/4, 6*time.Second)
		}
		f.isTraced = true
		late := lastLate(b, f.pass(in, out, rate, load.span))
		f.isTraced = false
		kept[name] = late <= throughLate
		b.Logf("%-8s %6d/s of %d bytes for %v: p99 of the last quarter %v, kept up: %v", name, rate, load.size, load.span, late, kept[name])
		b.ReportMetric(0, "ns/op")
	}
	b.Run("bare", func(b *testing.B) {
		stop := passOn(b, f.kafka, "raw.in", "raw")
		defer stop()
		run(b, "bare", "raw.in", "raw", load.bare)
	})
	b.Run("carillon", func(b *testing.B) {
		f.startNode()
		run(b, "carillon", delayTopic, targetTopic, load.rate)
		if kept["carillon"] && kept["bare"] {
			b.ReportMetric(float64(load.rate)/float64(load.bare), "of-bare")
		}
	})
}

// A tracedLoad is what BenchmarkTracedThrough passes through.
type tracedLoad struct {
	rate int // messages a second through the node
	span time.Duration
	size int // bytes of a message's value
	bare int // messages a second through the bare loop; 0: as many
}

// read takes over what the text says.
func (l *tracedLoad) read(text string) (err error) {
	for i, part := range strings.Split(text, "/") {
		switch i {
		case 0:
			l.rate, err = strconv.Atoi(part)
		case 1:
			l.span, err = time.ParseDuration(part)
		case 2:
			l.size, err = strconv.Atoi(part)
		case 3:
			l.bare, err = strconv.Atoi(part)
		default:
			err = errors.New("more than four parts")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A passage is messages that are produced to one topic and come out of another.
type passage struct {
	b        *testing.B
	kafka    *kafkaCluster
	producer *kgo.Client
	load     []*process      // Kafka, and the node when there is one
	nodes    []*carillonNode // that one
	size     int             // of a message's value, bytes
	isTraced bool            // pass tells of each second
}

// newPassage starts Kafka with the topics of the bare loop, raw.in and raw, and those of a node.
func newPassage(b *testing.B, size int) *passage {
	k := startKafka(b, freeAddrs(b, 1)...)
	topics := []string{"raw.in", "raw", delayTopic, targetTopic}
	k.create(benchPartitions, topics...)
	keepFor(b, k, 2*time.Minute, topics...)
	producer := k.client(kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(1<<20))
	return &passage{b: b, kafka: k, producer: producer, load: []*process{k.brokers[0].process}, size: size}
}

// keepFor has Kafka delete what is older, since five minutes of it are more than a disk may have room for.
func keepFor(b *testing.B, k *kafkaCluster, age time.Duration, topics ...string) {
	setting := func(name string, value int64) kadm.AlterConfig {
		text := strconv.FormatInt(value, 10)
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &text}
	}
	answers, err := k.admin.AlterTopicConfigs(b.Context(), []kadm.AlterConfig{
		setting("retention.ms", age.Milliseconds()), setting("segment.bytes", 128<<20), setting("file.delete.delay.ms", 1000),
	}, topics...)
	for _, answer := range answers {
		err = errors.Join(err, answer.Err)
	}
	if err != nil {
		b.Fatalf("have Kafka keep %v for %v: %v", topics, age, err)
	}
}

// startNode starts one node beside Kafka.
func (f *passage) startNode() *process {
	f.nodes = startCarillon(f.b, f.kafka.addrs(), dirs(f.b, 1)...).nodes
	node := f.nodes[0].process
	f.load = append(f.load, node)
	return node
}

// pass produces messages to a topic for so long, at the rate a second, and returns how late they came out of
// another. It prints what each cost the processes, and this one.
func (f *passage) pass(in, out string, rate int, span time.Duration) (lateness []time.Duration) {
	n := int(float64(rate) * span.Seconds())
	finish := f.measure(out, n)
	began, before, ours := time.Now(), ticksOf(f.b, f.load), ownTime(f.b)
	pace(rate, n, func() { f.producer.Produce(context.Background(), f.through(in), nil) })
	lateness = finish()
	f.b.Logf("%d in %v; processor time of one: this process %v, Kafka and node %v", n, time.Since(began).Round(time.Millisecond),
		(ownTime(f.b)-ours)/time.Duration(n), each(ticksOf(f.b, f.load), before, n))
	return lateness
}

// measure is measure of Kafka's, or a trace.
func (f *passage) measure(topic string, n int) (finish func() []time.Duration) {
	if !f.isTraced {
		return measure(f.kafka, topic, n)
	}
	t := newTrace(f.b, f.load, f.nodes)
	wait := consume(f.kafka, topic, n, t.take)
	return func() []time.Duration { wait(); return t.finish() }
}

// lastLate returns p99 of the last quarter.
func lastLate(b *testing.B, lateness []time.Duration) time.Duration {
	if len(lateness) == 0 {
		b.Fatal("nothing came out")
	}
	last := lateness[len(lateness)*3/4:]
	slices.Sort(last)
	return last[len(last)*99/100]
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

// through is a record that is due when it is produced.
func (f *passage) through(topic string) *kgo.Record {
	now := time.Now()
	return &kgo.Record{Topic: topic, Value: make([]byte, f.size), Timestamp: now, Headers: []kgo.RecordHeader{dueHeader(topic, now)}}
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
