package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// place creates a topic of one partition, led by the first of the brokers and followed by the others.
func (k *kafkaCluster) place(topic string, brokers ...int32) {
	k.t.Helper()
	client := k.client()
	defer client.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: topic, NumPartitions: -1, ReplicationFactor: -1,
		ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: brokers}}}}
	response, err := request.RequestWith(k.t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	if err != nil {
		k.t.Fatalf("create %s: %v", topic, err)
	}
	for _, b := range k.brokers {
		await(k.t, patience, "broker "+b.Addr+" knows "+topic, func() bool {
			request := kmsg.NewPtrMetadataRequest()
			request.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
			response, err := client.Broker(b.ID).RetriableRequest(k.t.Context(), request)
			if err != nil {
				return false
			}
			told := response.(*kmsg.MetadataResponse).Topics
			return len(told) == 1 && told[0].ErrorCode == 0 && len(told[0].Partitions) == 1
		})
	}
}

func (k *kafkaCluster) sink() *kafka.Sink { return k.sinkBy(k.addrs()...) }

// sinkBy returns a sink that has these brokers configured.
func (k *kafkaCluster) sinkBy(brokers ...string) *kafka.Sink {
	k.t.Helper()
	sink, err := kafka.NewSink(reach.Config{Kafka: config.Kafka{Brokers: brokers}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(sink.Close)
	return sink
}

// flowEvery is the time between two records of a flow beside another.
const flowEvery = 10 * time.Millisecond

// A flow is records that are sent to a target at a steady rate.
type flow struct {
	mu     sync.Mutex
	took   []time.Duration
	failed error
	out    sync.WaitGroup
}

func (f *flow) run(sink *kafka.Sink, topic string, records int, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range records {
		if i%20 == 0 {
			if answer := sink.Partitions(context.Background(), []string{topic})[0]; answer.Err != nil {
				f.fail(answer.Err)
			}
		}
		start := time.Now()
		f.out.Add(1)
		sink.Send(deliver.Delivery{Topic: topic, Value: fmt.Append(nil, i)}, func(_ deliver.Receipt, err error) {
			defer f.out.Done()
			if err != nil {
				f.fail(err)
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.took = append(f.took, time.Since(start))
		})
		<-ticker.C
	}
	f.out.Wait()
}

func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}

func (f *flow) millis(q float64) float64 {
	slices.Sort(f.took)
	return float64(f.took[int(q*float64(len(f.took)-1))].Microseconds()) / 1000
}

// checkOrder reads what the flow wrote: all of it, in order.
func (k *kafkaCluster) checkOrder(topic string, records int) {
	k.t.Helper()
	reader := k.client(kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	for next := 0; next < records; {
		for _, r := range reader.PollFetches(k.t.Context()).Records() {
			if string(r.Value) != strconv.Itoa(next) {
				k.t.Fatalf("%s: record %q where %d was expected", topic, r.Value, next)
			}
			next++
		}
	}
}

func TestFrozenKafkaBroker_keepsNoTargetThatItDoesNotServe(t *testing.T) {
	t.Parallel()
	k := startKafka(t, freeAddrs(t, 3)...)
	k.place("served", 1, 2)
	sink := k.sink()
	var before, beside flow
	before.run(sink, "served", 20, time.Millisecond)
	k.brokers[2].process.send(syscall.SIGSTOP)
	defer k.brokers[2].process.send(syscall.SIGCONT)
	beside.run(sink, "served", 1000, 2*time.Millisecond) // it ends although the broker stays frozen
	if before.failed != nil || beside.failed != nil || len(beside.took) != 1000 {
		t.Errorf("%d of 1000 written: %v, %v", len(beside.took), before.failed, beside.failed)
	}
}

// The one configured broker is frozen. Clients that are made meanwhile, as for targets that are given up, know no other.
func TestFrozenKafkaBroker_isNotNeededToFindTheOthers(t *testing.T) {
	t.Parallel()
	const targets = 10
	k := startKafka(t, freeAddrs(t, 3)...)
	for i := range targets {
		k.place(fmt.Sprintf("target-%d", i), 1, 2)
	}
	sink := k.sinkBy(k.brokers[2].Addr)
	var before flow
	before.run(sink, "target-0", 20, time.Millisecond)
	k.brokers[2].process.send(syscall.SIGSTOP)
	defer k.brokers[2].process.send(syscall.SIGCONT)
	for i := range targets {
		var beside flow
		topic := fmt.Sprintf("target-%d", i)
		sink.Isolate(topic)
		beside.run(sink, topic, 1, time.Millisecond)
		if beside.failed != nil {
			t.Errorf("%s: %v", topic, beside.failed)
			continue
		}
		t.Logf("%s: %v", topic, beside.took[0])
	}
}

// A follower of one target is frozen for 1.2 s of every 3 s, so that writing to it takes as long.
func TestFollowerFrozenNowAndThen_delaysOnlyItsTarget(t *testing.T) {
	t.Parallel()
	const lasting = 9 * time.Second
	k, _, other := besideSlowFollower(t, lasting) // of the slow one some may fail, as its lane would send again
	if n := int(lasting / flowEvery); other.failed != nil || len(other.took) != n {
		t.Errorf("%d of %d written: %v", len(other.took), n, other.failed)
	}
	k.checkOrder("other", len(other.took))
}

func BenchmarkBesideSlowFollower(b *testing.B) {
	_, slow, other := besideSlowFollower(b, time.Minute)
	b.ReportMetric(slow.millis(0.99), "slow-p99-ms")
	b.ReportMetric(other.millis(0.5), "other-p50-ms")
	b.ReportMetric(other.millis(0.99), "other-p99-ms")
	b.ReportMetric(other.millis(1), "other-max-ms")
}

func besideSlowFollower(t testing.TB, lasting time.Duration) (k *kafkaCluster, slow, other *flow) {
	k = startKafka(t, freeAddrs(t, 3)...)
	k.place("slow", 1, 3)
	k.place("other", 1, 2)
	k.place("first", 1, 2, 3)
	sink := k.sink()
	new(flow).run(sink, "first", 500, flowEvery) // Kafka's first answers take long
	slow, other = new(flow), new(flow)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		freeze, ticker := time.NewTicker(3*time.Second), time.NewTimer(time.Hour)
		defer freeze.Stop()
		defer ticker.Stop()
		for {
			select {
			case <-freeze.C:
				k.brokers[2].process.send(syscall.SIGSTOP)
				ticker.Reset(1200 * time.Millisecond)
			case <-ticker.C:
				k.brokers[2].process.send(syscall.SIGCONT)
			case <-stop:
				k.brokers[2].process.send(syscall.SIGCONT)
				return
			}
		}
	})
	var flows sync.WaitGroup
	flows.Go(func() { slow.run(sink, "slow", int(lasting/flowEvery), flowEvery) })
	flows.Go(func() { other.run(sink, "other", int(lasting/flowEvery), flowEvery) })
	flows.Wait()
	close(stop)
	all.Wait()
	return k, slow, other
}
