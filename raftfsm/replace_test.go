package raftfsm

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// A node is replaced with many messages pending while load goes on. It is run
// for as many messages as CARILLON_PENDING says, 20,000 otherwise.
func TestReplace_withManyPendingUnderLoad(t *testing.T) {
	pending := 20_000
	flushBytes, segmentSize := int64(1<<20), 256<<10
	if s := os.Getenv("CARILLON_PENDING"); s != "" {
		var err error
		if pending, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
		flushBytes, segmentSize = 0, 0
	}
	c := realCluster(t, 3, func(cfg *Config) {
		cfg.FlushBytes, cfg.SegmentSize = flushBytes, segmentSize
		if testing.Short() {
			cfg.Heartbeat = 500 * time.Millisecond // Replace watches for three of them
		}
	})
	n := c.leader()
	away := otherThan(c, n)
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
func checkScan(t *testing.T, s *storage.Store) {
	t.Helper()
	var seen uint64
	var at, last storage.Ref
	for done := false; !done; {
		var items []storage.Item
		var err error
		if items, at, done, err = s.Scan(at, 10_000, nil, nil); err != nil {
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
