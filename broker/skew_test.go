package broker

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/clock"
	"github.com/carillonmq/carillon/broker/config"
)

// newTestSkew returns the comparing part of n1, which has no term, in a cluster of the members.
func newTestSkew(wall func() time.Time, members ...string) *skew {
	own := config.Default()
	own.Node.ID, own.Cluster.Members = "n1", nil
	for _, id := range members {
		own.Cluster.Members = append(own.Cluster.Members, config.Member{ID: id})
	}
	return newSkew(&Broker{
		config: own, log: slog.New(slog.DiscardHandler), compareEvery: compareEvery,
		clock: clock.New(clock.Config{Wall: wall, MaxSkew: own.Clock.MaxSkew}),
	})
}

// A node that is alone can find its clock set while it has no term: between two of them, say. The
// next term must not wait until the old time comes back.
func TestSkew_aloneLooksAgainWithoutATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		k := newTestSkew(func() time.Time { return time.Now().Add(offset) }, "n1")
		ctx, cancel := context.WithCancel(t.Context())
		go k.run(ctx)
		time.Sleep(time.Minute)
		offset = time.Hour
		k.broker.clock.Due()
		time.Sleep(12 * time.Second)
		if due := k.broker.clock.Due(); !due.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("messages are due by %v, the clock was steady for 12 s at %v", due, time.Now().Add(time.Hour))
		}
		cancel()
		synctest.Wait()
	})
}
