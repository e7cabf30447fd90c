package brokertest

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/client"
	raftnode "github.com/carillonmq/carillon/raftfsm/node"
)

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

// serve is serveNames with this Kafka.
func (k *countedKafka) serve(late *lateness) (node *raftnode.Node, stop func()) {
	return serveNames(k.t, reach.Config{Dial: k.dial}, k.ListenAddrs(), k.now, late)
}

// A kafkaProcess is a countedKafka with a process of its own.
type kafkaProcess struct {
	t  testing.TB
	to *json.Encoder
	of *json.Decoder
}

// A kafkaOrder is what a kafkaProcess is to do.
type kafkaOrder struct {
	Names   int       // to begin with so many, and schedule messages for them
	Begin   time.Time // when the first of these is due
	Slow    bool      // to be slow from now on
	Recount bool      // to count requests anew
}

// A kafkaAnswer is how it stands then.
type kafkaAnswer struct {
	Addrs                           []string
	Scheduled                       uint64
	Requests, Asked, Open, Accepted int64
}

const kafkaProcessEnv = "CARILLON_TEST_KAFKA_OF_NAMES"

// startKafka starts this program again, as a Kafka that does nothing until it is told to. It ends when t does.
func startKafka(t testing.TB) *kafkaProcess {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKafkaOfNames$")
	cmd.Env = append(os.Environ(), kafkaProcessEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &kafkaProcess{t, json.NewEncoder(in), json.NewDecoder(out)}
}

func (k *kafkaProcess) tell(o kafkaOrder) (answer kafkaAnswer) {
	if err := k.to.Encode(o); err != nil {
		k.t.Fatal(err)
	}
	if err := k.of.Decode(&answer); err != nil {
		k.t.Fatal(err)
	}
	return answer
}

// TestKafkaOfNames is the program that startKafka starts, and otherwise nothing.
func TestKafkaOfNames(t *testing.T) {
	if os.Getenv(kafkaProcessEnv) == "" {
		return
	}
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var k *countedKafka
	var told kafkaAnswer
	for {
		var o kafkaOrder
		if err := orders.Decode(&o); err != nil {
			return
		}
		switch {
		case o.Names > 0:
			k = newCountedKafka(t, o.Names, net.Listen, new(net.Dialer).DialContext)
			defer k.Close()
			told.Addrs, told.Scheduled = k.ListenAddrs(), k.schedule(o.Names, o.Begin)
		case o.Slow:
			k.slowDown()
		case o.Recount:
			k.requests.Store(0)
			k.names.Store(0)
		}
		told.Requests, told.Asked, told.Open, told.Accepted = k.requests.Load(), k.names.Load(), k.open.Load(), k.accepted.Load()
		if err := answers.Encode(told); err != nil {
			t.Fatal(err)
		}
	}
}
