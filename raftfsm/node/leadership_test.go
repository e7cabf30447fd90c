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

// A follower whose disk hangs answers heartbeats, and one whose disk is slow answers for a part of what it lacks. Leadership is
// handed to either once, and again only when all was sent to it. Raft would be left with a hand-over that never ends, and this
// node propose nothing whenever it leads.
func TestTransferLeadershipTo_triesWhoIsSlowOnce(t *testing.T) {
	for _, test := range []struct {
		name     string
		write    time.Duration // that the follower takes
		commands int
		waits    time.Duration // until the follower has begun to write what Raft sends at a time
	}{
		{"its disk hangs", 20 * time.Second, 10, 0},
		{"its disk is slow", 900 * time.Millisecond, mostBehind - 1, 950 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				takes := map[string]*atomic.Int64{}
				c := newCluster(t, 3, func(cfg *Config) {
					takes[cfg.NodeID] = new(atomic.Int64)
					cfg.LogFiles = slowLog{fs.New(), takes[cfg.NodeID]}
				})
				c.open("n1", "n2", "n3")
				n := c.leader()
				must(t, n, raftfsm.Found{ClusterID: topicID})
				slow := otherThan(c, n)
				time.Sleep(time.Second)
				takes[slow].Store(int64(test.write))
				for range test.commands {
					must(t, n, raftfsm.Found{ClusterID: topicID})
				}
				time.Sleep(test.waits)
				if to, err := n.TransferLeadershipTo(t.Context(), []string{slow}); !errors.Is(err, raftfsm.ErrInDoubt) {
					t.Fatalf("transfer to %q, error %v, and it cannot have had the whole log in time", to, err)
				}
				refused := 0
				c.eventually("hand-over once all was sent", func() bool {
					if refused++; refused == 200 {
						takes[slow].Store(0) // of the next writes
					}
					_, err := n.TransferLeadershipTo(t.Context(), []string{slow})
					if err != nil && !errors.Is(err, ErrNoTarget) {
						t.Errorf("try %d: %v", refused, err)
					}
					return err == nil
				})
				if refused < 10 {
					t.Errorf("handed over at try %d", refused)
				}
			})
		})
	}
}
