package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm/member"
	raftnode "github.com/carillonmq/carillon/raftfsm/node"
)

const (
	existing      = 1000 // targets that exist and answer in time
	messagesEach  = 10   // of theirs, one a second
	slowNames     = 100  // targets that exist and take 0.9 s for each answer
	delayOfNames  = "in.delay"
	endOfExisting = "orders"
	endOfOthers   = "replies"
)

// However many names are slow or missing, what is due for others is on time. A commit and the work of
// a processor take no time here; BenchmarkManyNames has both.
func TestManyNames_delayNoneThatExists(t *testing.T) {
	const names = 10_000
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		k := newCountedKafka(t, names, network.Listen, network.DialContext)
		defer k.Close()
		begin := time.Now().Add(20 * time.Second)
		total := k.schedule(names, begin)
		late := new(lateness)
		k.now = time.Now // virtual
		node, stop := k.serve(late)
		defer stop()
		time.Sleep(time.Until(begin))
		if pending := node.Store().State().Pending; pending != total {
			t.Fatalf("%d messages were accepted, want %d", pending, total)
		}
		k.slowDown()
		time.Sleep(30 * time.Second)
		if p99 := late.report(t); p99 > 50 {
			t.Errorf("p99 is %d ms late beside %d names, want 50 at most", p99, names)
		}
	})
}

// BenchmarkManyNames is that of package broker with a Kafka: a thousand targets that exist have ten
// messages each over ten seconds, alone and among 100,000 names, of which Kafka takes 0.9 s for
// each request with one of a hundred, and the others are missing, each with a message that is due
// at the beginning. kfake and the producer are in a process of their own, so what this one takes is the
// node's: with its garbage, as resident memory that no file backs, and without, as what is in use of heap and stacks
// after a collection. Two minutes each, in a process of its own:
//
//	go test -run xxx -bench 'ManyNames/1000$' -benchtime 1x -v ./broker/brokertest
//	go test -run xxx -bench 'ManyNames/100000$' -benchtime 1x -v ./broker/brokertest
func BenchmarkManyNames(b *testing.B) {
	untouched := make([]byte, 32<<20) // it is collected as carillon serve is
	defer runtime.KeepAlive(untouched)
	for _, names := range []int{existing, 100_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			for range b.N {
				manyNames(b, names)
			}
		})
	}
}

func manyNames(b *testing.B, names int) {
	k := startKafka(b)
	begin := time.Now().Add(20 * time.Second)
	told := k.tell(kafkaOrder{Names: names, Begin: begin})
	before, residentBefore := inUse(), resident(b)
	late := new(lateness)
	node, stop := serveNames(b, reach.Config{}, told.Addrs, nil, late)
	defer stop()
	peak := peakResident(b)
	for node.Store().State().Pending < told.Scheduled {
		if time.Now().After(begin) {
			b.Fatalf("%d of %d messages were accepted in time", node.Store().State().Pending, told.Scheduled)
		}
		time.Sleep(10 * time.Millisecond)
	}
	k.tell(kafkaOrder{Slow: true})
	memory := func() string {
		now := resident(b)
		return fmt.Sprintf("%+d MB resident, %+d at most so far, %+d in use", now-residentBefore, peak()-residentBefore, (inUse()-before)>>20)
	}
	b.Logf("accepted %v before the first was due: %s", time.Until(begin).Round(time.Second), memory())
	for _, at := range []time.Duration{15 * time.Second, 90 * time.Second} {
		k.tell(kafkaOrder{Recount: true})
		from := time.Now()
		time.Sleep(time.Until(begin.Add(at)))
		minutes := time.Since(from).Minutes()
		told := k.tell(kafkaOrder{})
		b.Logf("%v after it: %s; %d goroutines, %d connections of %d that were made; %.0f requests for metadata a minute, of %.0f names",
			at, memory(), runtime.NumGoroutine(), told.Open, told.Accepted, float64(told.Requests)/minutes, float64(told.Asked)/minutes)
	}
	late.report(b)
}

func nameOf(i int) string {
	end := endOfOthers
	if i < existing {
		end = endOfExisting
	}
	return fmt.Sprintf("customer-%08d.%s", i, end)
}

// A countedKafka is a kfake that counts what it is asked, and can be slow for the others of its topics.
type countedKafka struct {
	*kfake.Cluster
	t               testing.TB
	dial            func(ctx context.Context, network, addr string) (net.Conn, error)
	now             func() time.Time  // of the node that serve runs
	gate            *kafkatest.Gate   // before Kafka
	slow            map[[16]byte]bool // ids of the others
	accepted, open  atomic.Int64      // connections
	requests, names atomic.Int64      // for metadata
}

func newCountedKafka(t testing.TB, names int, listen func(network, addr string) (net.Listener, error), dial func(context.Context, string, string) (net.Conn, error)) *countedKafka {
	k := &countedKafka{t: t, dial: dial, slow: make(map[[16]byte]bool)}
	var topics []string
	for i := range min(names, existing+slowNames) {
		topics = append(topics, nameOf(i))
	}
	k.gate = kafkatest.NewGate(func(network, addr string) (net.Listener, error) {
		l, err := listen(network, addr)
		return countedListener{l, k}, err
	})
	var err error
	k.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(12, delayOfNames), kfake.SeedTopics(1, topics...), kfake.ListenFn(k.gate.Listen))
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics[min(len(topics), existing):] {
		k.slow[k.TopicInfo(topic).TopicID] = true
	}
	k.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		k.requests.Add(1)
		k.names.Add(int64(len(request.(*kmsg.MetadataRequest).Topics)))
		return nil, nil, false
	})
	return k
}

// slowDown has Kafka take 0.9 s from now on for what is written to others than the thousand.
func (k *countedKafka) slowDown() {
	k.gate.Hold(func(request kafkatest.Request) {
		produce, writes := request.Request.(*kmsg.ProduceRequest)
		if writes && slices.ContainsFunc(produce.Topics, func(t kmsg.ProduceRequestTopic) bool {
			return strings.HasSuffix(t.Topic, endOfOthers) || k.slow[t.TopicID]
		}) {
			time.Sleep(900 * time.Millisecond)
		}
	})
}

// serveNames runs a node without a bound on missing names until stop is called. now is nil for the machine's clock, and the
// kernel's alarm.
func serveNames(t testing.TB, connection reach.Config, addrs []string, now func() time.Time, late *lateness) (node *raftnode.Node, stop func()) {
	log := slog.New(slog.DiscardHandler)
	cfg := config.Default()
	cfg.Cluster.Bootstrap = true
	cfg.Kafka.Brokers = addrs
	cfg.Routes[0].MaxMissingTargets = 0
	cfg.Routes[0].Start = "earliest"
	cfg = cfg.Resolved()
	var network kfake.VirtualNetwork
	ctx, cancel := context.WithCancel(t.Context())
	node, err := raftnode.Open(ctx, raftnode.Config{
		NodeID: cfg.Node.ID, DataDir: t.TempDir(), ClusterName: cfg.Cluster.Name, Bootstrap: true,
		Members: []member.Member{member.Member(cfg.Cluster.Members[0])},
		Listen:  network.Listen, Dial: network.DialContext, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	connection.Kafka, connection.ClientID, connection.Logger = cfg.Kafka, cfg.Node.ID, log
	running := broker.New(broker.Options{
		Config: cfg, Node: node, Now: now, Metrics: broker.NewMetrics(prometheus.NewRegistry()), Logger: log,
		Source: func() (ingest.Source, error) { return kafka.NewSource(connection, cfg.IsDelayTopic) },
		Survey: connection.Survey,
		Sink: func() (broker.Sink, error) {
			sink, err := kafka.NewSink(connection)
			return timedSink{sink, late}, err
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	return node, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A lateness is how many milliseconds after their due time messages for the thousand were in Kafka.
type lateness struct {
	mu   sync.Mutex
	late []int64
}

// report returns the 99th percentile.
func (l *lateness) report(t testing.TB) (p99 int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.late)
	n := len(l.late)
	if n != existing*messagesEach {
		t.Fatalf("%d messages were delivered to the thousand, want %d", n, existing*messagesEach)
	}
	t.Logf("delivered to the thousand: %d messages, late p50 %d, p99 %d, most %d ms", n, l.late[n/2], l.late[n*99/100], l.late[n-1])
	return l.late[n*99/100]
}

// A timedSink notes when Kafka has acknowledged what is for some topics.
type timedSink struct {
	broker.Sink
	late *lateness
}

func (s timedSink) Send(d deliver.Delivery, done func(deliver.Receipt, error)) {
	if !strings.HasSuffix(d.Topic, endOfExisting) {
		s.Sink.Send(d, done)
		return
	}
	due := int64(0)
	for _, h := range d.Headers {
		if h.Key == client.HeaderDeliveredFor {
			due, _ = strconv.ParseInt(string(h.Value), 10, 64) // a wrong one shows as years
		}
	}
	s.Sink.Send(d, func(receipt deliver.Receipt, err error) {
		if err == nil {
			s.late.mu.Lock()
			s.late.late = append(s.late.late, time.Now().UnixMilli()-due)
			s.late.mu.Unlock()
		}
		done(receipt, err)
	})
}

// inUse returns the bytes of heap and stacks that are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// resident returns the megabytes of the process that no file backs.
func resident(b *testing.B) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kb, _ := strconv.ParseInt(string(bytes.Fields(value)[0]), 10, 64)
			return kb >> 10
		}
	}
	return 0
}

// peakResident watches the memory of the process until the benchmark ends, and returns what tells the most that was
// resident.
func peakResident(b *testing.B) (peak func() int64) {
	var most atomic.Int64
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); ; {
			most.Store(max(most.Load(), resident(b)))
			select {
			case <-stop:
				return
			case <-tick:
			}
		}
	})
	b.Cleanup(func() { close(stop); watch.Wait() })
	return most.Load
}
