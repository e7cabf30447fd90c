// The race detector finds one in kfake, between requests that SleepControl holds back.

//go:build !race

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
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/ingest"
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
	if testing.Short() {
		t.Skip("takes long")
	}
	synctest.Test(t, func(t *testing.T) {
		const names = 10_000
		var network kfake.VirtualNetwork
		k := newCountedKafka(t, names, network.Listen, network.DialContext)
		defer k.Close()
		k.now = time.Now // virtual
		begin := time.Now().Add(20 * time.Second)
		total := k.schedule(names, begin)
		late := new(lateness)
		node, stop := k.serve(late)
		defer stop()
		time.Sleep(time.Until(begin))
		if pending := node.Store().State().Pending; pending != total {
			t.Fatalf("%d messages were accepted, want %d", pending, total)
		}
		k.slow.Store(true)
		time.Sleep(30 * time.Second)
		if p99 := late.report(t); p99 > 50 {
			t.Errorf("p99 is %d ms late beside %d names, want 50 at most", p99, names)
		}
	})
}

// BenchmarkManyNames is that of package broker with a Kafka: a thousand targets that exist have ten
// messages each over ten seconds, alone and among 100,000 names, of which Kafka takes 0.9 s for
// each request with one of a hundred, and the others are missing, each with a message that is due
// at the beginning. Node and kfake share the process; what kfake takes for the delay topic
// is left out of the memory that is printed. Two minutes each, in a process of its own:
//
//	go test -run xxx -bench 'ManyNames/1000$' -benchtime 1x -v ./broker/brokertest
//	go test -run xxx -bench 'ManyNames/100000$' -benchtime 1x -v ./broker/brokertest
func BenchmarkManyNames(b *testing.B) {
	for _, names := range []int{existing, 100_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			for range b.N {
				manyNames(b, names)
			}
		})
	}
}

func manyNames(b *testing.B, names int) {
	k := newCountedKafka(b, names, net.Listen, new(net.Dialer).DialContext)
	defer k.Close()
	begin := time.Now().Add(20 * time.Second)
	total := k.schedule(names, begin)
	before := inUse()
	late := new(lateness)
	node, stop := k.serve(late)
	defer stop()
	for node.Store().State().Pending < total {
		if time.Now().After(begin) {
			b.Fatalf("%d of %d messages were accepted in time", node.Store().State().Pending, total)
		}
		time.Sleep(10 * time.Millisecond)
	}
	k.slow.Store(true)
	b.Logf("accepted %v before the first was due: %+d MB", time.Until(begin).Round(time.Second), (inUse()-before)>>20)
	for _, at := range []time.Duration{15 * time.Second, 90 * time.Second} {
		k.requests.Store(0)
		k.names.Store(0)
		from := time.Now()
		time.Sleep(time.Until(begin.Add(at)))
		minutes := time.Since(from).Minutes()
		b.Logf("%v after it: %+d MB, resident %d MB, %d goroutines, %d connections of %d that were made; %.0f requests for metadata a minute, of %.0f names",
			at, (inUse()-before)>>20, resident(b), runtime.NumGoroutine(), k.open.Load(), k.accepted.Load(),
			float64(k.requests.Load())/minutes, float64(k.names.Load())/minutes)
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
	now             func() time.Time // nil: the machine's clock, and the kernel's alarm
	slow            atomic.Bool
	accepted, open  atomic.Int64 // connections
	requests, names atomic.Int64 // for metadata
}

func newCountedKafka(t testing.TB, names int, listen func(network, addr string) (net.Listener, error), dial func(context.Context, string, string) (net.Conn, error)) *countedKafka {
	k := &countedKafka{t: t, dial: dial}
	var topics []string
	for i := range min(names, existing+slowNames) {
		topics = append(topics, nameOf(i))
	}
	var err error
	k.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(12, delayOfNames), kfake.SeedTopics(1, topics...),
		kfake.ListenFn(func(network, addr string) (net.Listener, error) {
			l, err := listen(network, addr)
			return countedListener{l, k}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	slow := make(map[[16]byte]bool)
	for _, topic := range topics[min(len(topics), existing):] {
		slow[k.TopicInfo(topic).TopicID] = true
	}
	k.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		k.requests.Add(1)
		k.names.Add(int64(len(request.(*kmsg.MetadataRequest).Topics)))
		return nil, nil, false
	})
	k.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		if k.slow.Load() && slices.ContainsFunc(request.(*kmsg.ProduceRequest).Topics, func(t kmsg.ProduceRequestTopic) bool {
			return strings.HasSuffix(t.Topic, endOfOthers) || slow[t.TopicID]
		}) {
			k.SleepControl(func() { time.Sleep(900 * time.Millisecond) })
		}
		return nil, nil, false
	})
	return k
}

// schedule produces what is due from begin on to the delay topic, and returns how many that are.
func (k *countedKafka) schedule(names int, begin time.Time) (total uint64) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.Dialer(k.dial), kgo.MaxBufferedRecords(1<<20),
		kgo.DefaultProduceTopic(delayOfNames), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		k.t.Fatal(err)
	}
	defer producer.Close()
	add := func(target string, due time.Time) {
		total++
		producer.Produce(k.t.Context(), &kgo.Record{Value: make([]byte, 100), Headers: []kgo.RecordHeader{
			{Key: client.HeaderTo, Value: []byte(target)},
			{Key: client.HeaderAt, Value: strconv.AppendInt(nil, due.UnixMilli(), 10)},
		}}, func(_ *kgo.Record, err error) {
			if err != nil {
				k.t.Errorf("produce: %v", err)
			}
		})
	}
	for i := range existing {
		for n := range messagesEach {
			add(nameOf(i), begin.Add(time.Duration(n)*time.Second+time.Duration(i)*time.Millisecond))
		}
	}
	for i := existing; i < names; i++ {
		add(nameOf(i), begin)
	}
	if err := producer.Flush(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	return total
}

// serve runs a node without a bound on missing names until stop is called.
func (k *countedKafka) serve(late *lateness) (node *raftnode.Node, stop func()) {
	log := slog.New(slog.DiscardHandler)
	cfg := config.Default()
	cfg.Cluster.Bootstrap = true
	cfg.Kafka.Brokers = k.ListenAddrs()
	cfg.Routes[0].MaxMissingTargets = 0
	cfg.Routes[0].Start = "earliest"
	cfg = cfg.Resolved()
	var network kfake.VirtualNetwork
	ctx, cancel := context.WithCancel(k.t.Context())
	node, err := raftnode.Open(ctx, raftnode.Config{
		NodeID: cfg.Node.ID, DataDir: k.t.TempDir(), ClusterName: cfg.Cluster.Name, Bootstrap: true,
		Members: []member.Member{member.Member(cfg.Cluster.Members[0])},
		Listen:  network.Listen, Dial: network.DialContext, Logger: log,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	connection := reach.Config{Kafka: cfg.Kafka, ClientID: cfg.Node.ID, Logger: log, Dial: k.dial}
	running := broker.New(broker.Options{
		Config: cfg, Node: node, Now: k.now, Metrics: broker.NewMetrics(prometheus.NewRegistry()), Logger: log,
		Source: func() (ingest.Source, error) { return kafka.NewSource(connection, cfg.IsDelayTopic) },
		Sink: func() (deliver.Sink, error) {
			sink, err := kafka.NewSink(connection)
			return timedSink{sink, late}, err
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	return node, func() {
		cancel()
		if err := <-ended; err != nil {
			k.t.Error(err)
		}
		if err := node.Close(); err != nil {
			k.t.Error(err)
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
	deliver.Sink
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

type countedListener struct {
	net.Listener
	kafka *countedKafka
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.kafka.accepted.Add(1)
	l.kafka.open.Add(1)
	return &countedConn{Conn: c, kafka: l.kafka}, nil
}

type countedConn struct {
	net.Conn
	kafka *countedKafka
	once  sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.kafka.open.Add(-1) })
	return c.Conn.Close()
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
