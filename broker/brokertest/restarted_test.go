package brokertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
)

// A leader that has started a moment ago has not applied its log yet, and its state knows no more than one that was never
// founded. It tells nobody anything by that: who asks is served, or is told that nothing was done and to ask again.
func TestRestarted_tellsNothingBeforeItsLogIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3", "sync=20ms"}))
		defer c.stop()
		var early atomic.Int32
		for round := range 4 {
			ctx, served := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			for _, n := range c.nodes {
				n.start()
				broker := n.broker
				asking.Go(func() {
					for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
						_, err := broker.Orders().Cancel(ctx, "orders.delay", "an id", order.Condition{})
						_, resumeErr := broker.Resume(ctx, client.Pause{Kind: client.PauseTopic, Name: "orders.delay"})
						for _, err := range []error{err, resumeErr} {
							told := &client.Problem{}
							switch {
							case errors.As(err, &told) && (told.Code == client.CodeLevelTooLow || told.Code == client.CodeIDsClosed && round > 0): // new clusters open their ids
								t.Error(err)
							case err != nil && strings.Contains(err.Error(), "leads since a moment ago"):
								early.Add(1)
							case errors.Is(err, client.ErrNotFound):
								served()
							}
						}
					}
				})
			}
			asking.Wait()
			served()
			for _, n := range c.nodes {
				n.kill()
			}
		}
		if early.Load() == 0 {
			t.Error("nobody has asked too early")
		}
	})
}
