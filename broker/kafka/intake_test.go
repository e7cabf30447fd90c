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
