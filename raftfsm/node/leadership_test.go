package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
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

// Raft would wait for one that is far behind, and propose nothing meanwhile.
func TestTransferLeadershipTo_passesOverWhoIsFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		n := c.leader()
		must(t, n, raftfsm.Found{ClusterID: topicID})
		away := otherThan(c, n)
		c.isolate(away)
		began := time.Now() // it answered a moment ago
		for range mostBehind + 1 {
			must(t, n, raftfsm.Found{ClusterID: topicID})
		}
		if to, err := n.TransferLeadershipTo(t.Context(), []string{away}); !errors.Is(err, ErrNoTarget) || time.Since(began) >= n.patience() {
			t.Errorf("transfer to %q, error %v after %v", to, err, time.Since(began))
		}
		c.rejoin(away)
		c.agree()
		if to, err := n.TransferLeadershipTo(t.Context(), []string{away}); err != nil || to != away {
			t.Errorf("transfer to %q, error %v though %s has caught up", to, err, away)
		}
	})
}
