package brokertest

import (
	"testing"
	"testing/synctest"
	"time"
)

// A member was away for longer than the log reaches. Before it has received the schedule, over a disk that takes its time, it must
// not say that it is ready: the next one of a rolling upgrade would be stopped. Nor when its disk takes nothing any more.
func TestReady_isNoMemberThatHasNotTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3", "flush=16384"}))
		defer c.stop()
		p := newPlayer(c, NewReport())
		c.must(p.createTopic("orders.delay", arguments{}))
		c.must(p.createTopic("orders", arguments{}))
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		time.Sleep(5 * time.Second)
		away := c.nodes[0]
		if away == c.leader() {
			away = c.nodes[1]
		}
		away.stop()
		time.Sleep(5 * time.Second)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=2000", "bytes=500", "deliver-after=2h"})))
		time.Sleep(30 * time.Second)
		slow := func(d time.Duration) { away.files.change(func() { away.files.slow = d }) }

		slow(30 * time.Second)
		away.start()
		begun := time.Now()
		for away.broker.Ready() != nil {
			if time.Sleep(10 * time.Millisecond); time.Since(begun) > 10*time.Minute {
				t.Fatalf("not ready: %v", away.broker.Ready())
			}
		}
		if n := away.raft().Store().Pending(); n != 2000 {
			t.Errorf("ready with %d messages of 2000", n)
		}

		slow(time.Hour)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=1", "deliver-after=2h"})))
		time.Sleep(time.Minute)
		if away.broker.Ready() == nil {
			t.Error("ready with a disk that takes nothing")
		}
		slow(0)
		time.Sleep(2 * time.Hour) // a sync is under way
	})
}
