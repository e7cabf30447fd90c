package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A node is replaced with many messages pending while load goes on. In virtual time no
// heartbeat is missed, however little of the machine the test gets.
func TestReplace_withManyPendingUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.SegmentSize = 256 << 10 })
		for _, m := range c.members {
			c.open(m.ID)
		}
		replaceUnderLoad(t, c, 20_000)
	})
}

// BenchmarkReplace is the same with a million pending, on loopback and the real clock, and prints
// how long it takes.
func BenchmarkReplace(b *testing.B) {
	for range b.N {
		c := realCluster(b, 3, nil)
		replaceUnderLoad(b, c, 1_000_000)
		c.closeAll()
	}
}

func replaceUnderLoad(t testing.TB, c *cluster, pending int) {
	n := c.leader()
	away := otherThan(c, n)
	c.born(away)
	c.close(away)
	l := startLoad(t, n)
	start := time.Now()
	for range pending / 500 {
		must(t, n, l.batch(500, 100))
	}
	t.Logf("%d pending after %s", pending, time.Since(start))
	eventually(t, "cut log", func() bool {
		must(t, n, l.batch(500, 100))
		return errors.Is(n.logs.GetLog(1, new(raft.Log)), raft.ErrLogNotFound)
	})
	c.wipe(away)
	if err := n.Replace(t.Context(), away); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var slowest atomic.Int64
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		for ctx.Err() == nil {
			begin := time.Now()
			if _, err := n.Propose(ctx, l.batch(20, 100)).Wait(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("load: %v", err)
				return
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(begin))))
			pause(ctx, time.Millisecond)
		}
	}()
	start = time.Now()
	c.open(away)
	eventually(t, "vote", func() bool {
		for _, m := range n.Status().Members {
			if m.ID == away {
				return m.Voter
			}
		}
		return false
	})
	t.Logf("voting again after %s, slowest write meanwhile %s", time.Since(start), time.Duration(slowest.Load()))
	stop()
	<-loaded
	c.agree()
	if c.nodes[away].Status().SnapshotIndex == 0 {
		t.Error("it caught up from the log alone, this tested nothing")
	}
	if got := n.store.Pending(); got < uint64(pending) {
		t.Errorf("pending %d of %d", got, pending)
	}
	for _, m := range c.members {
		checkScan(t, c.nodes[m.ID].store)
	}
}

// checkScan reads everything in the order of delivery.
func checkScan(t testing.TB, s *storage.Store) {
	t.Helper()
	var seen uint64
	var at, last storage.Ref
	for done := false; !done; {
		var items []storage.Item
		var err error
		if items, at, done, err = s.Scan(at, storage.Ref{}, 10_000, nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, it := range items {
			if it.Ref.Compare(last) < 0 {
				t.Fatalf("%v after %v", it.Ref, last)
			}
			last = it.Ref
		}
		seen += uint64(len(items))
	}
	if seen != s.Pending() {
		t.Errorf("scanned %d of %d", seen, s.Pending())
	}
}

// Half a replacement is not told as none.
func TestReplace_isInDoubtOnceThePlaceIsTaken(t *testing.T) {
	for _, cause := range []error{raftfsm.ErrNotLeader, raftfsm.ErrClosed, raftfsm.ErrBusy} {
		if err := notAdded("n3#9", "n3", cause); !errors.Is(err, raftfsm.ErrInDoubt) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "n3 is removed, replace the member again") {
			t.Errorf("%v after the removal: %v", cause, err)
		}
		if err := notAdded("n3#9", "", cause); errors.Is(err, raftfsm.ErrInDoubt) || !errors.Is(err, cause) {
			t.Errorf("%v with nothing done: %v", cause, err)
		}
	}
}
