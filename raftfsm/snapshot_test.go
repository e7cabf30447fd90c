package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
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
		must(t, n, RaiseLevel{Level: level})
		away := otherThan(c, n)
		c.close(away)
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		for i := range 60 {
			must(t, n, l.batch(20, 200))
			must(t, n, Ack{Runs: killed(uint64(i*20+1), uint64(i*20+7))})
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
	for _, kind := range []string{LogWAL, LogBoltDB} {
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
	to := openStore(t, dir)
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

func TestReconcile(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, last uint64 // of the log, term 1
		manifest    storage.SnapshotMeta
		cleared     uint64
		wantFirst   uint64
		wantLast    uint64
		want        error
	}{
		{name: "an empty log", manifest: storage.SnapshotMeta{Index: 9, Term: 1}},
		{name: "nothing flushed yet", first: 1, last: 5, wantFirst: 1, wantLast: 5},
		{name: "flushed within the log", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 1}, wantFirst: 3, wantLast: 9},
		{name: "flushed at its end", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 9, Term: 1}, wantFirst: 3, wantLast: 9},
		{name: "cut right behind the flush", first: 7, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 1}, wantFirst: 7, wantLast: 9},
		{name: "received beyond its end", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 10, Term: 1}},
		{name: "received over another history", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 2}},
		{name: "schedule lost", first: 3, last: 9, want: ErrDamaged},
		{name: "schedule too old", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 1, Term: 1}, want: ErrDamaged},
		{name: "an empty log, once cleared", cleared: 9, manifest: storage.SnapshotMeta{Index: 9, Term: 1}},
		{name: "schedule lost beside an empty log", cleared: 9, want: ErrDamaged},
		{name: "schedule too old beside an empty log", cleared: 9, manifest: storage.SnapshotMeta{Index: 8, Term: 1}, want: ErrDamaged},
		{name: "both too old", cleared: 12, first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 1}, want: ErrDamaged},
		{name: "gone on since the log was cleared", cleared: 2, first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 2, Term: 1}, wantFirst: 3, wantLast: 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := openLog(t.TempDir(), Config{Log: LogWAL, SegmentSize: testSegmentSize, Logger: testLogger(t)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i := tt.first; i <= tt.last && tt.last > 0; i++ {
				if err := s.StoreLog(entry(i, 100)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.reconcile(tt.manifest, tt.cleared); !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			} else if err != nil {
				return
			}
			first, _ := s.FirstIndex()
			last, _ := s.LastIndex()
			if first != tt.wantFirst || last != tt.wantLast {
				t.Errorf("log %d to %d, want %d to %d", first, last, tt.wantFirst, tt.wantLast)
			}
			if err := s.StoreLog(entry(max(last, tt.manifest.Index)+1, 10)); err != nil {
				t.Errorf("the next entry: %v", err)
			}
		})
	}
}

// Raft would delete the log and go on counting from its old end.
func TestRestore_refusesASnapshotThatEndsBeforeTheLog(t *testing.T) {
	var failure error
	s := openStore(t, t.TempDir())
	defer s.Close()
	f := newFSM(s, func() (uint64, error) { return 5, nil }, fsmConfig(1<<20), func(err error) { failure = err })
	if err := f.Restore(io.NopCloser(strings.NewReader(""))); err == nil || failure == nil {
		t.Errorf("restored: %v, failed with %v", err, failure)
	}
}

// The sink that raft cancels leaves nothing behind.
func TestSink_cancelledLeavesTheManifestAlone(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	shots := &snapshots{store: s, received: func(error) {}, refuse: func() {}}
	k, err := shots.Create(1, 7, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
	if list, err := shots.List(); err != nil || len(list) != 0 {
		t.Errorf("list %v, %v", list, err)
	}
}

type brokenSchedule struct{ err error }

func (b brokenSchedule) Flush(storage.SnapshotMeta) error { return b.err }
func (b brokenSchedule) Release()                         {}

func TestPersist_stopsTheNodeWhenTryingAgainIsOfNoUse(t *testing.T) {
	for _, tt := range []struct {
		err   error
		stops bool
	}{{storage.ErrFailed, true}, {storage.ErrCorrupt, true}, {storage.ErrDiskFull, false}, {storage.ErrGeneration, false}} {
		var failure error
		f := &fsm{backlog: newBacklog(100), fail: func(err error) { failure = err }}
		m := &marker{schedule: brokenSchedule{fmt.Errorf("flush: %w", tt.err)}, fsm: f}
		if err := m.Persist(&sink{}); !errors.Is(err, tt.err) || errors.Is(failure, tt.err) != tt.stops {
			t.Errorf("%v: persisted with %v, stopped with %v", tt.err, err, failure)
		}
	}
}
