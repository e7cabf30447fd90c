package node

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/storage"
)

// A follower that was away for longer than the log reaches gets the segments, and
// then what was written meanwhile.
func TestSnapshot_bringsAFollowerBackThatTheLogCannot(t *testing.T) {
	t.Run("level one", func(t *testing.T) { bringBack(t, storage.LevelOne) })
	t.Run("level two", func(t *testing.T) { bringBack(t, storage.LevelTwo) })
}

func bringBack(t *testing.T, level storage.Level) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 64 << 10 })
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, raftfsm.RaiseLevel{Level: level})
		away := otherThan(c, n)
		c.close(away)
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		for i := range 60 {
			must(t, n, l.batch(20, 200))
			must(t, n, raftfsm.Ack{Runs: killed(uint64(i*20+1), uint64(i*20+7))})
		}
		c.eventually("shorter log", func() bool { first, err := n.logs.FirstIndex(); return err == nil && first > 50 })
		c.open(away)
		for range 20 {
			must(t, n, l.batch(20, 200))
		}
		c.agree()
		if at := c.nodes[away].Status().SnapshotIndex; at < 50 {
			t.Errorf("it came back from the log alone (manifest at %d), this tested nothing", at)
		}
	})
}

// A follower that has flushed while it ran, and so keeps log behind its flush, is
// cut off, gets the segments, and starts again before it flushes once more.
func TestSnapshot_receivedByARunningFollowerSurvivesARestart(t *testing.T) {
	for _, kind := range []string{raftlog.WAL, raftlog.BoltDB} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 64 << 10; cfg.Log = kind })
				c.open("n1", "n2", "n3")
				n := c.leader()
				l := startLoad(t, n)
				away := otherThan(c, n)
				ingestUntil(c, n, l, "flush of the follower", func() bool { return c.nodes[away].Status().SnapshotIndex > 1 })
				c.agree()
				c.isolate(away)
				end := c.nodes[away].Status().LastIndex
				time.Sleep(5 * time.Second) // until the leader keeps no more log for it
				n = c.leader()
				ingestUntil(c, n, l, "log cut", func() bool { first, err := n.logs.FirstIndex(); return err == nil && first > end+1 })
				c.rejoin(away)
				c.agree()
				if at := c.nodes[away].Status().SnapshotIndex; at <= end {
					t.Errorf("it came back from the log alone (manifest at %d), this tested nothing", at)
				}
				must(t, c.leader(), l.batch(1, 10))
				c.agree()
				c.close(away)
				c.open(away)
				must(t, c.leader(), l.batch(1, 10))
				c.agree()
			})
		})
	}
}

// A leader that is cut off writes entries that nobody else gets. The others go on, and cut their log just where its log ends.
func TestSnapshot_besideAnotherEndOfTheLogIsFollowedFromTheNextStartOn(t *testing.T) {
	for _, kind := range []string{raftlog.WAL, raftlog.BoltDB} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const flush = 256 << 10
				c := newCluster(t, 3, func(cfg *Config) { cfg.Log, cfg.FlushBytes = kind, flush })
				c.open("n1", "n2", "n3")
				deposed := c.leader()
				l := startLoad(t, deposed)
				must(t, deposed, l.batch(20, 200))
				c.agree()
				away := deposed.cfg.NodeID
				c.isolate(away)
				alone := *l
				for range 20 {
					deposed.Propose(t.Context(), alone.batch(1, 10))
					synctest.Wait()
				}
				end, term, err := deposed.logs.End()
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second) // until the leader keeps no more log for it
				n := c.leader()
				for n.Status().LastIndex < end {
					if end-n.Status().LastIndex > 2 {
						must(t, n, l.batch(20, 200))
					} else { // each of these flushes cuts the log where the one before it was
						must(t, n, l.batch(1, flush))
						if err := n.flush(n.running()); err != nil {
							t.Fatal(err)
						}
					}
				}
				at := n.Status()
				if at.SnapshotIndex != end || at.LastIndex != end || at.Term == term {
					t.Fatalf("the leader has flushed up to %d of %d in term %d, and the log of %s ends at %d in term %d: this tests nothing", at.SnapshotIndex, at.LastIndex, at.Term, away, end, term)
				}
				c.rejoin(away)
				want := fmt.Sprintf("it ends at entry %d of term %d and the log at %d of term %d: start the node again", end, at.Term, end, term)
				select {
				case err := <-deposed.Failed():
					if !strings.Contains(err.Error(), want) {
						t.Fatalf("it ended with %v, want %s", err, want)
					}
				case <-time.After(time.Minute):
					t.Fatalf("it goes on, with a log up to %d and a schedule up to %d", deposed.Status().LastIndex, deposed.Status().SnapshotIndex)
				}
				c.close(away)
				c.open(away)
				must(t, c.leader(), l.batch(1, 10))
				c.agree()
			})
		})
	}
}

func ingestUntil(c *cluster, n *Node, l *load, what string, ok func() bool) {
	c.t.Helper()
	c.eventually(what, func() bool {
		must(c.t, n, l.batch(20, 200))
		return ok()
	})
}

// The process dies after a received snapshot is in the manifest and before raft
// has deleted the log that it replaces.
func TestSnapshot_survivesACrashBetweenReceivingAndRestoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 64 << 10 })
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, l.batch(20, 200))
		c.agree()
		away := otherThan(c, n)
		c.close(away)
		for range 60 {
			must(t, n, l.batch(20, 200))
		}
		c.eventually("flush", func() bool { return n.Status().SnapshotIndex > 30 })
		receiveOnly(t, n.store, filepath.Join(c.dirs[away], scheduleDir))
		c.open(away)
		must(t, n, l.batch(20, 200))
		c.agree()
	})
}

func otherThan(c *cluster, n *Node) string {
	for _, m := range c.members {
		if m.ID != n.cfg.NodeID {
			return m.ID
		}
	}
	panic("a cluster of one")
}

func receiveOnly(t *testing.T, from *storage.Store, dir string) {
	t.Helper()
	to, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	meta, _, stream, err := from.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	r, err := to.Receive(meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(r, stream); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Commit(), stream.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
}
