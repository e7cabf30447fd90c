package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// askAnother is how long an answer that any Kafka broker can give takes longer when the first that is asked is frozen.
const askAnother = 100 * time.Millisecond

// freezable returns a Kafka's network and the configuration of who uses it.
func (b bubble) freezable() (*kafkatest.Freezer, reach.Config) {
	f := kafkatest.NewFreezer(b.Network.DialContext)
	config := b.config()
	config.Logger = slog.New(slog.DiscardHandler)
	config.Dial = f.Dial
	return f, config
}

// notLeading returns the address of a Kafka broker that leads none of the topics.
func (b bubble) notLeading(topics ...string) string {
	b.t.Helper()
	metadata, err := b.admin().Metadata(b.t.Context(), topics...)
	if err != nil {
		b.t.Fatal(err)
	}
	leads := make(map[int32]bool)
	for _, topic := range metadata.Topics {
		for _, p := range topic.Partitions {
			leads[p.Leader] = true
		}
	}
	for _, candidate := range metadata.Brokers {
		if !leads[candidate.NodeID] {
			return net.JoinHostPort(candidate.Host, strconv.Itoa(int(candidate.Port)))
		}
	}
	b.t.Fatalf("each Kafka broker leads one of %v", topics)
	return ""
}

// pass lets virtual time go by.
func pass(d time.Duration) { time.Sleep(d) }

// A client that is made while a Kafka broker is frozen, and one that meets a topic for the first time, ask a broker of
// franz-go's choice for a producer id and metadata.
func TestClientsBesideAFrozenBroker(t *testing.T) {
	const topics = 20
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	for _, test := range []struct{ made, configured string }{{"before", "all"}, {"beside", "all"}, {"before", "frozen"}, {"beside", "frozen"}} {
		t.Run(test.made+", configured: "+test.configured, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				for i, name := range names {
					if err := kafka.MoveTopicPartition(name, 0, int32(i%2)); err != nil {
						t.Fatal(err)
					}
				}
				network, config := kafka.freezable()
				frozen := kafka.notLeading(names...)
				if test.configured == "frozen" {
					config.Kafka.Brokers = []string{frozen}
				}
				sink, err := NewSink(config)
				if err != nil {
					t.Fatal(err)
				}
				defer sink.Close()
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: names[0]}); err != nil {
					t.Fatal(err)
				}
				failed, late, longest := 0, 0, time.Duration(0)
				for i, name := range names {
					network.Freeze(frozen)
					if test.made == "beside" {
						sink.mu.Lock()
						for _, p := range sink.quick {
							if len(p.lines) > 0 {
								sink.retire(p.lines[0])
							}
						}
						sink.mu.Unlock()
					}
					took, err := sendAndWait(sink, deliver.Delivery{Topic: name})
					if err != nil {
						failed++
					}
					if took > 500*time.Millisecond {
						late++
					}
					longest = max(longest, took)
					if i%2 == 0 {
						pass(time.Second) // the next client was made beside a frozen one, too
						continue
					}
					network.Freeze()
					pass(time.Second)
				}
				t.Logf("longest %v", longest)
				if failed > 0 || late > 0 {
					t.Errorf("of %d records %d failed and %d were late", topics, failed, late)
				}
			}, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, names...))
		})
	}
}

// A lag is how long it takes until what is written to a connection arrives.
type lag struct {
	net.Conn
	by       time.Duration
	arrivals chan arriving
	closed   context.Context
	close    context.CancelFunc
}

type arriving struct {
	at    time.Time
	bytes []byte
}

func (l lag) Write(b []byte) (int, error) {
	l.arrivals <- arriving{time.Now().Add(l.by), slices.Clone(b)}
	return len(b), nil
}

func (l lag) Close() error {
	l.close()
	return l.Conn.Close()
}

const far = time.Second

// lagging dials with such a lag; with inTurn what is written begins to arrive when what was written before it has, as at a
// broker that takes so long for each request.
func lagging(dial dialer, by time.Duration, inTurn bool) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		l := lag{Conn: conn, by: by, arrivals: make(chan arriving, 1000)}
		l.closed, l.close = context.WithCancel(context.Background())
		go func() {
			for l.closed.Err() == nil {
				select {
				case <-l.closed.Done():
				case a := <-l.arrivals:
					wait := time.Until(a.at)
					if inTurn {
						wait = by
					}
					select {
					case <-l.closed.Done():
					case <-time.After(wait):
						_, _ = l.Conn.Write(a.bytes)
					}
				}
			}
		}()
		return l, nil
	}
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Whoever is slow is waited for, though all its answers take longer than a healthy one's sign of life.
func TestSlowBrokerIsNotSilent(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		var dials atomic.Int64
		config := kafka.config()
		slow := lagging(config.Dial, far, false)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return slow(ctx, network, address)
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		for range 10 { // until it is known how slow it is
			_, _ = sendAndWait(sink, deliver.Delivery{Topic: "orders"})
		}
		pass(10 * time.Second)
		before := dials.Load()
		for range 100 {
			if took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil || took > 3*far {
				t.Errorf("%v after %v", err, took)
			}
		}
		if n := dials.Load() - before; n > 20 {
			t.Errorf("%d connections were opened to a broker that is slow", n)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// A controller that is frozen has no producer ids to give until Kafka has another one.
func TestNextLineNeedsNoProducerID(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		refused := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
		sink.mu.Lock()
		sink.retire(sink.target("orders", time.Now()).quick.lines[0])
		sink.mu.Unlock()
		if took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil || took > 0 {
			t.Errorf("%v after %v", err, took)
		}
		pass(time.Hour)
		if n := refused.Hits(); n > 1000 {
			t.Errorf("Kafka was asked for an id %d times in an hour in which it has none", n)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// Each look at the delay topics asks another Kafka broker, since one may answer from the past. One that is frozen costs
// one of them a moment, and takes its turn again when it has thawed.
func TestLooksBesideAFrozenBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		if err := kafka.MoveTopicPartition("orders.delay", 0, 0); err != nil {
			t.Fatal(err)
		}
		network, config := kafka.freezable()
		frozen := kafka.notLeading("orders.delay")
		r := newReaderOf(t, config)
		r.discover()
		var mu sync.Mutex
		asked := make(map[int32]int)
		kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			kafka.KeepControl()
			mu.Lock()
			defer mu.Unlock()
			asked[kafka.CurrentNode()]++
			return nil, nil, false
		})
		const looks = 60
		round := func(want int) {
			t.Helper()
			mu.Lock()
			clear(asked)
			mu.Unlock()
			late, longest := 0, time.Duration(0)
			for range looks {
				start := time.Now()
				r.discover()
				took := time.Since(start)
				longest = max(longest, took)
				if took > 0 {
					late++
				}
				pass(time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%d looks: %d waited, the longest %v; asked: %v", looks, late, longest, asked)
			if late > 1 || longest > askAnother {
				t.Errorf("%d looks waited, the longest %v; want one, and %v at most", late, longest, askAnother)
			}
			turns := 0
			for _, n := range asked {
				if n >= looks/4 {
					turns++
				}
			}
			if turns != want {
				t.Errorf("%d brokers took turns, want %d: %v", turns, want, asked)
			}
		}
		round(3)
		for range 3 {
			network.Freeze(frozen)
			round(2)
			network.Freeze()
			pass(5 * time.Second) // until it is asked for a sign anew
			round(3)
		}
	}, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, "orders.delay"))
}

// What a Source asks of a broker of franz-go's choice does not keep it from reading what others lead.
func TestReadingBeginsBesideAFrozenBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		if err := kafka.MoveTopicPartition("orders.delay", 0, 0); err != nil {
			t.Fatal(err)
		}
		kafka.produce(delayed("one"))
		network, config := kafka.freezable()
		network.Freeze(kafka.notLeading("orders.delay"))
		late := 0
		for range 20 {
			start := time.Now()
			r := newReaderOf(t, config)
			r.discover()
			r.read(1)
			if time.Since(start) > 2*time.Second {
				late++
			}
			r.Close()
		}
		if late > 0 {
			t.Errorf("%d of 20 began after more than two seconds", late)
		}
	}, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, "orders.delay"))
}

// One of three Kafka brokers is frozen, and leads nothing of the target.
func TestFrozenBrokerDelaysNoTargetThatItDoesNotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		network, config := kafka.freezable()
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		round := func() (longestAnswer, longestSend time.Duration) {
			for range 1200 {
				start := time.Now()
				if _, err := countOf(t.Context(), sink, "orders"); err != nil {
					t.Fatal(err)
				}
				longestAnswer = max(longestAnswer, time.Since(start))
				took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"})
				if err != nil {
					t.Fatal(err)
				}
				longestSend = max(longestSend, took)
				pass(100 * time.Millisecond)
			}
			return longestAnswer, longestSend
		}
		round()
		network.Freeze(kafka.notLeading("orders"))
		answer, send := round()
		t.Logf("longest answer %v, longest send %v", answer, send)
		if answer > 2*askAnother+50*time.Millisecond { // the count of partitions, and the limit
			t.Errorf("an answer took %v", answer)
		}
		if send > 50*time.Millisecond {
			t.Errorf("a send took %v", send)
		}
	}, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, "orders"))
}
