package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// Nobody else can lead: it need not wait for anybody.
func TestNode_aloneLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		for _, when := range []string{"born", "started again"} {
			begin := time.Now()
			c.open("n1")
			c.leader()
			if took := time.Since(begin); took >= c.nodes["n1"].cfg.Heartbeat/2 {
				t.Errorf("%s: it leads after %s", when, took)
			}
			if got, want := c.nodes["n1"].running().ReloadableConfig().HeartbeatTimeout, c.nodes["n1"].cfg.Heartbeat; got != want {
				t.Errorf("%s: heartbeat time-out %s, want %s", when, got, want)
			}
			c.close("n1")
		}
	})
}

// One of three waits for its leader.
func TestNode_ofThreeCallsNoElectionWhenItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		n := c.leader()
		term := n.Status().Term
		for range 5 {
			away := otherThan(c, n)
			c.close(away)
			c.open(away)
			time.Sleep(2 * time.Second)
		}
		if got := c.leader(); got != n || got.Status().Term != term {
			t.Errorf("term %d after the restarts, %d before", got.Status().Term, term)
		}
	})
}
