package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/report"
)

// An intake is what reads the delay topics of a new cluster of one node, as a term does.
type intake struct {
	pending func() uint64 // messages
	tells   func() report.Contents
}

type uncounted struct{}

func (uncounted) Accepted(int)         {}
func (uncounted) Answered(string, int) {}
func (uncounted) Rejected(string, int) {}
func (uncounted) SourceLost(int64)     {}

// takeIn runs test beside an intake whose route begins at start.
func takeIn(t *testing.T, c reach.Config, start string, test func(i intake)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	node := nodetest.Open(t, ctx)
	settings, told := config.Default(), report.New()
	settings.Routes[0].Start = start
	c.Logger = slog.New(slog.DiscardHandler)
	source, err := NewSource(c, func(topic string) bool { return strings.HasSuffix(topic, ".delay") })
	if err != nil {
		t.Fatal(err)
	}
	ingest := ingest.New(ingest.Options{Config: settings, Source: source, Log: node, Store: node.Store(), Count: uncounted{},
		Now: time.Now, Due: time.Now, Logger: c.Logger, Report: told, ClaimLead: 100, DiscoverEvery: time.Second})
	ended := make(chan error, 1)
	go func() { ended <- ingest.Run(ctx) }()
	test(intake{func() uint64 { return node.Store().State().Pending }, told.Read})
	cancel()
	<-ended
	source.Close()
	synctest.Wait()
	if err := node.Close(); err != nil {
		t.Error(err)
	}
}

// A Kafka that is far away, or takes its time for each request, is slow and not silent.
func TestKafkaThatAnswersSlowlyIsRead(t *testing.T) {
	for _, by := range []time.Duration{1700 * time.Millisecond, 2400 * time.Millisecond} {
		for _, inTurn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, one after the other: %t", by, inTurn), func(t *testing.T) {
				inBubble(t, func(t *testing.T, kafka bubble) {
					kafka.produce(delayed("x"))
					c := kafka.config()
					c.Dial = lagging(c.Dial, by, inTurn)
					takeIn(t, c, config.StartEarliest, func(i intake) {
						pass(2 * time.Minute)
						if n := i.pending(); n != 1 {
							t.Errorf("%d messages taken in after two minutes; problems %q", n, i.tells().Problems)
						}
					})
				}, kfake.SeedTopics(1, "orders.delay"))
			})
		}
	}
}

// begin begins a transaction and produces a record in it. end commits it.
func (b bubble) begin() (end func()) {
	b.t.Helper()
	user := b.client(kgo.TransactionalID("user"), kgo.TransactionTimeout(14*time.Minute))
	if err := user.BeginTransaction(); err != nil {
		b.t.Fatal(err)
	}
	if err := user.ProduceSync(b.t.Context(), delayed("in the transaction")).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		if err := user.EndTransaction(b.t.Context(), kgo.TryCommit); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Kafka gives nobody what follows a transaction that has not ended. Who has read all before it has not read all.
func TestTransactionThatDoesNotEndIsAProblem(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		takeIn(t, kafka.config(), config.StartEarliest, func(i intake) {
			pass(10 * time.Second) // the survey is over
			kafka.produce(delayed("before it"))
			end := kafka.begin()
			kafka.produce(delayed("behind it"), delayed("behind it"))
			pass(4 * time.Minute)
			if told := i.tells(); i.pending() != 1 || *told.Lag != 3 || len(told.Problems) != 0 {
				t.Errorf("after four minutes: %d taken in, lag %d, problems %q; want 1, 3 and none yet", i.pending(), *told.Lag, told.Problems)
			}
			pass(2 * time.Minute)
			told := i.tells()
			if *told.Lag != 3 || told.Reading.Partitions[report.StateTransaction] != 1 {
				t.Errorf("after six minutes: lag %d, partitions %v", *told.Lag, told.Reading.Partitions)
			}
			if want := "source: not read: orders.delay/0 (transaction: 3 records from offset 1 on have waited since "; len(told.Problems) != 1 || !strings.HasPrefix(told.Problems[0], want) {
				t.Errorf("problems %q, want %s...", told.Problems, want)
			}
			end()
			pass(15 * time.Second)
			if told := i.tells(); i.pending() != 4 || *told.Lag != 0 || len(told.Problems) != 0 {
				t.Errorf("after it has ended: %d taken in, lag %d, problems %q", i.pending(), *told.Lag, told.Problems)
			}
		})
	}, kfake.SeedTopics(1, "orders.delay"))
}

// A producer that has always another transaction open, each for a moment, holds nobody up.
func TestTransactionsThatEndAreNoProblem(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		takeIn(t, kafka.config(), config.StartEarliest, func(i intake) {
			pass(10 * time.Second)
			for range 10 {
				end := kafka.begin()
				pass(time.Minute)
				if problems := i.tells().Problems; len(problems) != 0 {
					t.Fatalf("problems %q", problems)
				}
				end()
			}
			pass(5 * time.Second)
			if n := i.pending(); n != 10 {
				t.Errorf("%d messages taken in, want 10", n)
			}
		})
	}, kfake.SeedTopics(1, "orders.delay"))
}

// What a transaction holds back that is open when the cluster is born was there before.
func TestOpenTransactionWasThereBeforeTheBirth(t *testing.T) {
	for start, want := range map[string]uint64{"": 0, config.StartLatest: 1, config.StartEarliest: 4} {
		t.Run("start: "+start, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				end := kafka.begin()
				kafka.produce(delayed("before the birth"), delayed("before the birth"))
				takeIn(t, kafka.config(), start, func(i intake) {
					pass(10 * time.Second)
					if waits := i.tells().Reading.Partitions[report.StateStart] == 1; waits != (start == "") {
						t.Errorf("waits for a start: %t, problems %q", waits, i.tells().Problems)
					}
					kafka.produce(delayed("after the birth"))
					end()
					pass(10 * time.Second)
					if n := i.pending(); n != want {
						t.Errorf("%d messages taken in, want %d", n, want)
					}
				})
			}, kfake.SeedTopics(1, "orders.delay"))
		})
	}
}
