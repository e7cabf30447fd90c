package brokertest

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clockProblem returns what the node says to be wrong with clocks.
func clockProblem(n *node) string {
	for _, problem := range n.broker.Status().Problems {
		if strings.HasPrefix(problem, "clock: ") {
			return problem
		}
	}
	return ""
}

// Nodes that are well and cannot ask each other notice no wrong clock. They say so, whoever leads, until they can.
func TestClock_thatNobodyCanReadIsAProblem(t *testing.T) {
	var logged strings.Builder
	onClocks(t, "nodes=5", func(c clockTest) {
		c.log = slog.New(slog.NewTextHandler(&logged, nil))
		c.noClocks.Store(true)
		c.startAll()
		c.produceSome("count=20", "spread=20s", "deliver-after=1s")
		leader := c.leader()
		var down *node
		for _, n := range c.nodes {
			if n != leader {
				down = n
			}
		}
		down.stop()
		time.Sleep(50 * time.Second)
		for _, n := range c.nodes {
			if n != down && clockProblem(n) != "" {
				t.Errorf("%s has just started and says %q", n.member.ID, clockProblem(n))
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait() // for the comparison of this moment
		for _, n := range c.nodes {
			if n == down {
				continue
			}
			problem := clockProblem(n)
			for _, other := range c.nodes {
				// A follower cannot tell who else is well, and nobody names a node that is down.
				wanted := other == leader || n == leader && other != down
				if got := strings.Contains(problem, other.member.ID+" ("+errExpired.Error()+")"); got != (wanted && other != n) {
					t.Errorf("%s, led by %s, while %s is down, says %q", n.member.ID, leader.member.ID, down.member.ID, problem)
				}
			}
			if !strings.Contains(problem, "api.tls.ca") || n.broker.Ready() != nil {
				t.Errorf("%s says %q, ready: %v", n.member.ID, problem, n.broker.Ready())
			}
		}
		c.noClocks.Store(false)
		down.start()
		time.Sleep(20 * time.Second)
		c.wantNoProblem()
		c.noClocks.Store(true)
		time.Sleep(30 * time.Second)
	})
	if log := logged.String(); strings.Count(log, `level=WARN msg="clocks: no other member reports`) != 4 || strings.Contains(log, "standing=alone") {
		t.Errorf("logged %s", log)
	}
}

// Where the others are down there is nobody to ask, and that is said already.
func TestClock_ofANodeThatIsLeftIsNoProblem(t *testing.T) {
	for _, settings := range []string{"nodes=1", "nodes=3"} {
		onClocks(t, settings, func(c clockTest) {
			c.startAll()
			c.produceSome("count=20", "spread=20s", "deliver-after=1s")
			left := c.leader()
			for _, n := range c.nodes {
				if n != left {
					n.stop()
				}
			}
			for range 30 {
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if problem := clockProblem(left); problem != "" {
					t.Errorf("%s: %s", settings, problem)
				}
			}
			for _, n := range c.nodes {
				if n != left {
					n.start()
				}
			}
		})
	}
}
