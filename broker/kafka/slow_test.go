package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/broker/deliver"
)

// delay has Kafka take that long for each request with a record of a topic, as one whose followers are slow.
func (b bubble) delay(took func(topic string) time.Duration) {
	b.t.Helper()
	b.requests(func(topics []string) {
		var longest time.Duration
		for _, topic := range topics {
			longest = max(longest, took(topic))
		}
		pass(longest)
	})
}

// A load is records that are sent to topics in turn, and how long they took.
type load struct {
	mu   sync.Mutex
	took []time.Duration
	left atomic.Int64
}

func (l *load) run(sink *Sink, topics []string, every time.Duration, until time.Time) {
	for i := 0; time.Now().Before(until); i++ {
		start := time.Now()
		l.left.Add(1)
		sink.Send(deliver.Delivery{Topic: topics[i%len(topics)]}, func(deliver.Receipt, error) {
			l.mu.Lock()
			l.took = append(l.took, time.Since(start))
			l.mu.Unlock()
			l.left.Add(-1)
		})
		pass(every)
	}
}

func (l *load) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.took)
	return l.took[int(q*float64(len(l.took)-1))]
}

// One target turns slow and well again every 20 s. The first slow answer cannot be foreseen; those after it
// must not cost the others anything.
func TestTargetThatIsSlowNowAndThenDelaysNoOther(t *testing.T) {
	const others, minutes = 20, 5
	for _, slow := range []time.Duration{100 * time.Millisecond, 900 * time.Millisecond, 4 * time.Second} {
		for _, every := range []time.Duration{20 * time.Millisecond, 3 * time.Millisecond} { // between two records of others
			if testing.Short() && (slow != 900*time.Millisecond || every > 3*time.Millisecond) {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", slow, every), func(t *testing.T) {
				names := []string{"slow"}
				for i := range others {
					names = append(names, fmt.Sprintf("target-%d", i))
				}
				inBubble(t, func(t *testing.T, kafka bubble) {
					sink := newSink(t, kafka)
					start := time.Now()
					kafka.delay(func(topic string) time.Duration {
						if topic == "slow" && int(time.Since(start)/(20*time.Second))%2 == 1 {
							return slow
						}
						return 2 * time.Millisecond
					})
					sink.Partitions(t.Context(), names)
					until := start.Add(minutes * time.Minute)
					var beside, itself load
					var senders sync.WaitGroup
					senders.Go(func() { beside.run(sink, names[1:], every, until) })
					senders.Go(func() { itself.run(sink, names[:1], 50*time.Millisecond, until) })
					senders.Wait()
					pass(time.Minute)
					synctest.Wait()
					if n := beside.left.Load() + itself.left.Load(); n != 0 {
						t.Errorf("%d records have no outcome", n)
					}
					t.Logf("others: p50 %v p99 %v p99.9 %v max %v; slow: p50 %v", beside.quantile(0.5), beside.quantile(0.99), beside.quantile(0.999), beside.quantile(1), itself.quantile(0.5))
					if p99 := beside.quantile(0.99); p99 > 50*time.Millisecond {
						t.Errorf("others: p99 %v late, want 50 ms at most", p99)
					}
				}, kfake.SeedTopics(1, names...))
			})
		}
	}
}

// A follower of one target is frozen for 1.2 s of every 3 s, and what is written to that target waits until it thaws.
// Who is on one connection with the first such answer waits as well, and counts as slow for a while; that must not bring
// them together again. Nor must hiccups of Kafka, after which all count as slow.
func TestTargetThatFreezesNowAndThenDelaysNoOther(t *testing.T) {
	const frozen, of, usual, lasting = 1200 * time.Millisecond, 3 * time.Second, 4 * time.Millisecond, 5 * time.Minute
	const hiccup, hiccupEvery = 90 * time.Millisecond, 8 * time.Second
	for _, tt := range []struct {
		others    int
		hiccups   bool
		p99, most time.Duration
	}{
		{others: quickPools - 1, p99: 2 * usual, most: 2 * usual}, // none shares a connection with it
		{others: 20, p99: 50 * time.Millisecond, most: of},
		{others: 20, hiccups: true, p99: hiccup + leastPatience, most: of},
	} {
		t.Run(fmt.Sprintf("%d/hiccups=%v", tt.others, tt.hiccups), func(t *testing.T) {
			names := []string{"slow"}
			for i := range tt.others {
				names = append(names, fmt.Sprintf("target-%d", i))
			}
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				start := time.Now()
				kafka.delay(func(topic string) time.Duration {
					since := time.Since(start)
					switch {
					case topic == "slow" && since%of < frozen:
						return frozen - since%of
					case tt.hiccups && since%hiccupEvery < hiccup:
						return hiccup - since%hiccupEvery
					}
					return usual
				})
				pass(frozen)
				sink.Partitions(t.Context(), names)
				loads := make([]load, len(names))
				var senders sync.WaitGroup
				for i := range loads {
					senders.Go(func() { loads[i].run(sink, names[i:i+1], 25*time.Millisecond, start.Add(lasting)) })
				}
				senders.Wait()
				pass(time.Minute)
				synctest.Wait()
				var all load
				var worst time.Duration
				for i := range loads {
					if n := loads[i].left.Load(); n != 0 {
						t.Errorf("%d records to %s have no outcome", n, names[i])
					}
					if i > 0 {
						worst = max(worst, loads[i].quantile(0.99))
						all.took = append(all.took, loads[i].took...)
					}
				}
				p99, most := all.quantile(0.99), all.quantile(1)
				t.Logf("others: p99 %v, of the latest %v, max %v; slow: p99 %v", p99, worst, most, loads[0].quantile(0.99))
				if p99 > tt.p99 || most > tt.most {
					t.Errorf("others: p99 %v max %v, want %v and %v at most", p99, most, tt.p99, tt.most)
				}
			}, kfake.SeedTopics(1, names...))
		})
	}
}

// An answer that is overdue has what waits take another connection. That it takes a little longer than usual makes no
// target slow.
func TestShortHiccupMakesNoTargetSlow(t *testing.T) {
	for _, tt := range []struct {
		took time.Duration
		slow bool
	}{{leastPatience + 5*time.Millisecond, false}, {3 * leastPatience, true}} {
		t.Run(tt.took.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				sink.Partitions(t.Context(), []string{"orders"})
				var requests atomic.Int64
				kafka.delay(func(string) time.Duration {
					if requests.Add(1) == 2 {
						return tt.took
					}
					return time.Millisecond
				})
				for range 2 { // the first connects
					if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
						t.Fatal(err)
					}
				}
				sink.mu.Lock()
				defer sink.mu.Unlock()
				if slow := sink.poolOf(sink.target("orders", time.Now()), time.Now()) == sink.slow; slow != tt.slow {
					t.Errorf("after an answer of %v it is among the slow: %v", tt.took, slow)
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
}

// Nothing is known yet of how fast a target is, as of all at the begin of a term. Its first record may wait for
// metadata, so nobody judges it by that; but new ones that come after it must not wait with it.
func TestNewTargetThatIsSlowDelaysNoNewOnes(t *testing.T) {
	const slow, others = 20, 1000
	var names []string
	for i := range slow + others {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	for _, tt := range []struct {
		within time.Duration // of each other the slow ones are sent to
		most   int           // others that may be late
	}{
		{0, 25},
		{60 * time.Millisecond, 100},
	} {
		t.Run(tt.within.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				kafka.delay(func(topic string) time.Duration {
					var i int
					if fmt.Sscanf(topic, "target-%d", &i); i < slow {
						return 900 * time.Millisecond
					}
					return 2 * time.Millisecond
				})
				sink.Partitions(t.Context(), names)
				for i, name := range names[:slow] {
					time.AfterFunc(tt.within*time.Duration(i)/slow, func() {
						sink.Send(deliver.Delivery{Topic: name}, func(deliver.Receipt, error) {})
					})
				}
				synctest.Wait()
				var beside load
				beside.run(sink, names[slow:], time.Millisecond, time.Now().Add(others*time.Millisecond))
				pass(10 * time.Second)
				synctest.Wait()
				late := 0
				for _, took := range beside.took {
					if took > 50*time.Millisecond {
						late++
					}
				}
				t.Logf("%d of %d new targets were late by more than 50 ms; p50 %v max %v", late, len(beside.took), beside.quantile(0.5), beside.quantile(1))
				if len(beside.took) != others || late > tt.most {
					t.Errorf("%d of %d new targets waited for a slow one, want %d at most", late, len(beside.took), tt.most)
				}
			}, kfake.SeedTopics(1, names...))
		})
	}
}

// Each lane waits at most stallAfter, 5 s, before it gives a target up and so sends what may be written twice.
func TestManySlowTargetsDelayEachOtherByOneAnswer(t *testing.T) {
	const slow, others = 200, 20
	var names []string
	for i := range slow + others {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		start := time.Now()
		kafka.delay(func(topic string) time.Duration {
			var i int
			if fmt.Sscanf(topic, "target-%d", &i); i < slow && time.Since(start) > 10*time.Second {
				return 900 * time.Millisecond
			}
			return time.Millisecond
		})
		sink.Partitions(t.Context(), names)
		until := start.Add(time.Minute)
		var beside, themselves load
		var senders sync.WaitGroup
		senders.Go(func() { themselves.run(sink, names[:slow], 5*time.Millisecond, until) })
		senders.Go(func() {
			pass(30 * time.Second) // all have been slow once
			beside.run(sink, names[slow:], 10*time.Millisecond, until)
		})
		senders.Wait()
		pass(time.Minute)
		t.Logf("slow: p50 %v p99 %v max %v; others: p99 %v max %v", themselves.quantile(0.5), themselves.quantile(0.99), themselves.quantile(1), beside.quantile(0.99), beside.quantile(1))
		if median := themselves.quantile(0.5); median > 2*time.Second {
			t.Errorf("a slow target waits %v for an answer of 0.9 s", median)
		}
		if p99 := beside.quantile(0.99); p99 > 50*time.Millisecond {
			t.Errorf("others: p99 %v late, want 50 ms at most", p99)
		}
	}, kfake.SeedTopics(1, names...))
}

// A Kafka broker that leads a thousand targets stops answering. Each lane gives its target up after 5 s, and
// sends again.
func TestStuckTargetsShareAFewClients(t *testing.T) {
	const stuck = 1000
	names := []string{"well"}
	for i := range stuck {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		var dials, produced atomic.Int64
		config := kafka.config()
		config.Logger = slog.New(slog.DiscardHandler)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return kafka.Network.DialContext(ctx, network, address)
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		sink.Partitions(t.Context(), names)
		deliverAll := func() {
			t.Helper()
			outcomes := make(chan error, len(names))
			for _, name := range names {
				sink.Send(deliver.Delivery{Topic: name}, func(_ deliver.Receipt, err error) { outcomes <- err })
			}
			for range names {
				if err := <-outcomes; err != nil {
					t.Error(err)
				}
			}
		}
		deliverAll()
		release := make(chan struct{})
		kafka.requests(func(topics []string) {
			produced.Add(int64(len(topics)))
			<-release
		})
		before := dials.Load()
		const rounds = 5
		for range rounds {
			for _, name := range names[1:] {
				sink.Send(deliver.Delivery{Topic: name}, func(deliver.Receipt, error) {})
			}
			pass(5 * time.Second)
			for _, name := range names[1:] {
				sink.Isolate(name)
			}
			sink.mu.Lock()
			if n := len(sink.open); n > quickPools*quickLines+slowLines+2*(stuckLines+suspectLines) {
				t.Errorf("%d clients for %d stuck targets", n, stuck)
			}
			sink.mu.Unlock()
		}
		t.Logf("%d stuck targets, %d rounds: %d dials, %d records in requests", stuck, rounds, dials.Load()-before, produced.Load())
		if n := dials.Load() - before; n > 75 {
			t.Errorf("%d connections were opened for %d stuck targets", n, stuck)
		}
		if n := produced.Load(); n > 50 {
			t.Errorf("%d records lie in Kafka's sockets and may be written twice", n)
		}
		close(release)
		pass(time.Second)
		deliverAll()
	}, kfake.SeedTopics(1, names...))
}

// A Kafka broker answers again after a while. Each lane gives its target up after 5 s and sends again, so most
// records wait for a connection that one of before keeps; they need not wait longer than it does.
func TestStuckTargetsGoOutOnceKafkaAnswers(t *testing.T) {
	const stuck, lanePatience = 200, 5 * time.Second
	var names []string
	for i := range stuck {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	for _, away := range []time.Duration{6 * time.Second, 10100 * time.Millisecond, 14 * time.Second, 31 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				sink.Partitions(t.Context(), names)
				release := make(chan struct{})
				kafka.requests(func([]string) { <-release })
				var lanes sync.WaitGroup
				for _, name := range names {
					lanes.Go(func() {
						for failed := true; failed; {
							outcome := make(chan error, 1)
							sink.Send(deliver.Delivery{Topic: name}, func(_ deliver.Receipt, err error) { outcome <- err })
							select {
							case err := <-outcome:
								failed = err != nil
							case <-time.After(lanePatience):
								sink.Isolate(name)
								<-outcome
							}
						}
					})
				}
				pass(away)
				close(release)
				from := time.Now()
				lanes.Wait()
				if took := time.Since(from); took > 500*time.Millisecond {
					t.Errorf("the last record went out %v after Kafka answered", took)
				}
			}, kfake.SeedTopics(1, names...))
		})
	}
}

// One late answer, as any Kafka has them, makes a target slow for seconds. That keeps others from waiting for it
// and must not make its own records later. What flies together is one request nevertheless.
func TestTargetThatCountsAsSlowIsNotMadeLate(t *testing.T) {
	const usual, hiccup = 20 * time.Millisecond, 3 * leastPatience
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		sink.Partitions(t.Context(), []string{"orders"})
		var requests atomic.Int64
		kafka.delay(func(string) time.Duration {
			if requests.Add(1) == 2 {
				return hiccup
			}
			return usual
		})
		for range 3 { // the first connects, the second is late, the third is the first that counts as slow
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
				t.Fatal(err)
			}
		}
		requests.Store(2)
		var sent load
		for i := range 100 {
			start := time.Now()
			sink.Send(deliver.Delivery{Topic: "orders", Partition: int32(i % 4)}, func(deliver.Receipt, error) {
				sent.mu.Lock()
				sent.took = append(sent.took, time.Since(start))
				sent.mu.Unlock()
			})
		}
		pass(time.Second)
		synctest.Wait()
		// The first flies alone, and what waits behind it goes with the next flight.
		if n := len(sent.took); n != 100 {
			t.Fatalf("%d of 100 records have an outcome", n)
		}
		if least, most := sent.quantile(0), sent.quantile(1); least != usual || most != 2*usual {
			t.Errorf("records took %v to %v, want one answer, %v, or two", least, most, usual)
		}
		if n := requests.Load() - 2; n != 2 {
			t.Errorf("%d requests, want two", n)
		}
	}, kfake.SeedTopics(4, "orders"))
}
