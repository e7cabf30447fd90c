package node

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// What fails because the node stops is no news: not that it accepts no connections, nor that those it had end.
func TestClose_warnsOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := map[string]*lines{"n1": {}, "n2": {}, "n3": {}}
		c := newCluster(t, 3, func(cfg *Config) { cfg.Logger = logs[cfg.NodeID].logger() })
		c.open("n1", "n2", "n3")
		leader := c.leader()
		time.Sleep(time.Second) // heartbeats run
		for _, id := range []string{otherThan(c, leader), leader.cfg.NodeID} {
			before := len(logs[id].String())
			c.close(id)
			if said := logs[id].String()[before:]; strings.Contains(said, "level=WARN") || strings.Contains(said, "level=ERROR") {
				t.Errorf("the leader was %s, and %s said at its end:\n%s", leader.cfg.NodeID, id, said)
			}
		}
	})
}

// What raft has handed to the FSM, and what that does not come to before raft is shut down, leaves nobody waiting: the
// bubble would not end.
func TestClose_leavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		goOn := make(chan struct{})
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Applied = func(raftfsm.Command, raftfsm.Result) {
				if slow.Load() {
					<-goOn
				}
			}
		})
		c.open("n1")
		n := c.leader()
		l := startLoad(t, n)
		slow.Store(true)
		var ended sync.WaitGroup
		for range 20 { // of those that wait raft comes to one or two
			ended.Go(func() { _, _ = n.Propose(t.Context(), l.batch(1, 10)).Wait(t.Context()) })
			synctest.Wait()
			ended.Go(func() { _ = n.Barrier(t.Context()) })
			synctest.Wait()
		}
		time.AfterFunc(time.Minute, func() { close(goOn) })
		c.close("n1")
		ended.Wait()
	})
}
