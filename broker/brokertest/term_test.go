package brokertest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Where a term can begin on no node, since all have the same wrong certificate for Kafka say, leadership does not go round
// by the hundred a second.
func TestTerms_thatCannotBeginAnywhereAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3", "sync=5ms"}))
		defer c.stop()
		p := newPlayer(c, NewReport())
		c.must(p.createTopic("orders.delay", arguments{}))
		c.must(p.createTopic("orders", arguments{}))
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		time.Sleep(5 * time.Second)
		c.noSink.Store(true)
		old := c.leader()
		old.stop()
		old.start()
		time.Sleep(time.Minute)
		before := old.raft().Status().Term
		time.Sleep(10 * time.Minute)
		if n := old.raft().Status().Term - before; n > 10*60/3 {
			t.Errorf("%d terms in ten minutes", n)
		}
		c.noSink.Store(false)
		time.Sleep(time.Minute)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=1", "deliver-after=1s"})))
		time.Sleep(10 * time.Second)
		if n := c.leader().raft().Store().Pending(); n != 0 {
			t.Errorf("%d messages wait though terms can begin", n)
		}
	})
}
