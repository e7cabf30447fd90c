package node

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft-wal/fs"

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

// The disk of a follower hangs, which answers heartbeats all the same. Leadership is handed to it once, and again only when it has
// written. Raft would be left with a hand-over that never ends, and this node propose nothing whenever it leads.
func TestTransferLeadershipTo_triesWhoHangsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := map[string]*atomic.Int64{}
		c := newCluster(t, 3, func(cfg *Config) {
			takes[cfg.NodeID] = new(atomic.Int64)
			cfg.LogFiles = slowLog{fs.New(), takes[cfg.NodeID]}
		})
		c.open("n1", "n2", "n3")
		n := c.leader()
		must(t, n, raftfsm.Found{ClusterID: topicID})
		hangs := otherThan(c, n)
		takes[hangs].Store(int64(time.Minute))
		for range 10 {
			must(t, n, raftfsm.Found{ClusterID: topicID})
		}
		for _, want := range []error{raftfsm.ErrInDoubt, ErrNoTarget, ErrNoTarget} {
			if to, err := n.TransferLeadershipTo(t.Context(), []string{hangs}); !errors.Is(err, want) {
				t.Errorf("transfer to %q, error %v, want %v", to, err, want)
			}
			time.Sleep(time.Second)
		}
		must(t, n, raftfsm.Found{ClusterID: topicID})

		c.isolate(n.cfg.NodeID) // nobody leads, and what Raft asks of a follower is given up
		c.eventually("the leader steps down", func() bool { return n.Status().State != "leader" })
		takes[hangs].Store(0)
		time.Sleep(2 * time.Minute)
		c.rejoin(n.cfg.NodeID)
		c.eventually("it leads again", func() bool {
			now := c.leader()
			if now != n {
				_, _ = now.TransferLeadershipTo(t.Context(), []string{n.cfg.NodeID}) // it may not be back yet
			}
			return now == n
		})
		must(t, n, raftfsm.Found{ClusterID: topicID})
		c.agree()
		if to, err := n.TransferLeadershipTo(t.Context(), []string{hangs}); err != nil {
			t.Errorf("transfer to %q, which has written by now: %v", to, err)
		}
	})
}
