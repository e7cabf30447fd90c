package node

import (
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

func TestRetention_countsBytes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes []int64 // saved by flushes that end at 1, 2, 3 ...
		want  []uint64
	}{
		{"flushes of the size", []int64{100, 100, 110, 100}, []uint64{0, 1, 2, 3}},
		{"small flushes", []int64{10, 10, 10, 10, 60, 10, 10, 10, 90}, []uint64{0, 0, 0, 0, 0, 0, 0, 0, 5}},
		{"small flushes after one of the size", []int64{100, 100, 10, 10, 80, 10, 90}, []uint64{0, 1, 1, 1, 2, 2, 5}},
		{"nothing", []int64{100, 0, 0}, []uint64{0, 0, 0}},
	} {
		var k retention
		var got []uint64
		var saved int64
		for i, bytes := range tt.bytes {
			saved += bytes
			k.flushed(flushEnd{index: uint64(i + 1), bytes: saved}, 100)
			got = append(got, k.kept.index)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: the log is kept after %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Flushes that save little, as those for the dead, do not take the log from a follower that restarts meanwhile.
func TestRetention_outlastsSmallFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 64 << 10 })
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, l.batch(20, 200))
		c.agree()
		away := otherThan(c, n)
		c.close(away)
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		n = c.leader()
		for i := range 10 {
			must(t, n, raftfsm.Ack{Runs: killed(uint64(2*i+1), uint64(2*i+2))})
			if err := n.flush(n.running()); err != nil {
				t.Fatal(err)
			}
		}
		end := n.Status().SnapshotIndex
		c.open(away)
		c.agree()
		if at := c.nodes[away].Status().SnapshotIndex; at >= end {
			t.Errorf("it was sent a snapshot that ends at %d, for ten entries that it had not", at)
		}
	})
}

// The log ends at 1000; the flush before last ended at 900.
func TestRetention_keepsTheLogThatAFollowerNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			name     string
			peer     peer
			spacious bool
			want     uint64
		}{
			{"never answered", peer{}, true, 900},
			{"keeps up", peer{lastIndex: 1000, contact: now}, true, 1000},
			{"is behind", peer{lastIndex: 700, contact: now}, true, 700},
			{"is far behind", peer{lastIndex: 50, contact: now}, true, 200},
			{"is silent", peer{lastIndex: 700, contact: now.Add(-2 * time.Second)}, true, 900},
			{"receives a snapshot", peer{lastIndex: 5, contact: now, snapshot: 100, receives: true}, true, 100},
			{"stutters while it receives", peer{lastIndex: 5, contact: now.Add(-5 * time.Second), snapshot: 100, receives: true}, true, 100},
			{"catches up after it", peer{lastIndex: 150, contact: now, snapshot: 100, moved: now.Add(-30 * time.Second)}, true, 150},
			{"takes nothing after it", peer{lastIndex: 150, contact: now, snapshot: 100, moved: now.Add(-2 * time.Minute)}, true, 200},
			{"hangs while it receives", peer{lastIndex: 5, contact: now.Add(-11 * time.Second), snapshot: 100, receives: true}, true, 900},
			{"receives, and the disk is nearly full", peer{lastIndex: 5, contact: now, snapshot: 100, receives: true}, false, 200},
		} {
			if got := tt.peer.needs(1000, 900, 800, time.Second, tt.spacious); got != tt.want {
				t.Errorf("%s: the log after %d is kept, want %d", tt.name, got, tt.want)
			}
		}
	})
}

// An unhurriedConn writes what is large at so many bytes a second; 0: at once.
type unhurriedConn struct {
	net.Conn
	rate *atomic.Int64
}

func (c unhurriedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if rate := c.rate.Load(); rate > 0 && n > 2000 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
	return n, err
}

// A follower receives a snapshot while the leader flushes some times. The log after it is kept, so one is enough.
func TestRetention_makesOneSnapshotEnough(t *testing.T) {
	t.Run("the leader has flushed before", func(t *testing.T) { receiveOnce(t, false) })
	t.Run("the leader has just started", func(t *testing.T) { receiveOnce(t, true) })
}

func receiveOnce(t *testing.T, restarted bool) {
	synctest.Test(t, func(t *testing.T) {
		const away = "n3"
		var rate atomic.Int64
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.FlushBytes = 64 << 10
			cfg.Dial = dialer(cfg.Dial).through(away, func(c net.Conn) net.Conn { return unhurriedConn{c, &rate} })
		})
		c.open("n1", "n2", away)
		c.born(away)
		l := startLoad(t, c.leader())
		c.agree()
		c.close(away)
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		for range 400 {
			must(t, c.leader(), l.batch(20, 1000))
		}
		if restarted {
			for _, n := range c.nodes {
				if err := n.flush(n.running()); err != nil {
					t.Fatal(err)
				}
			}
			c.close("n1", "n2")
			c.open("n1", "n2")
		}
		n := c.leader()
		rate.Store(350 << 10)
		c.open(away)
		id := c.nodes[away].raftID()
		c.eventually("a snapshot", func() bool { return n.transport.peer(id).receives })
		sent, began := []uint64{n.transport.peer(id).snapshot}, n.store.Stats().Flushes
		for range 900 {
			p := n.transport.peer(id)
			if p.lastIndex < sent[0] {
				must(t, n, l.batch(10, 1000)) // 100 KB a second while the first one is sent
			}
			if p.snapshot > sent[len(sent)-1] {
				sent = append(sent, p.snapshot)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if flushes := n.store.Stats().Flushes - began; flushes < 2*slowFollowerFlushes {
			t.Errorf("%d flushes came meanwhile: this tests nothing", flushes)
		}
		if len(sent) > 1 {
			t.Errorf("snapshots were sent that end at %v, want one", sent)
		}
		rate.Store(0)
		c.agree()
	})
}

// A follower whose disk is full answers, so the log is kept for it, and is enough.
func TestRetention_isEnoughForAFollowerWhoseDiskWasFull(t *testing.T) {
	dir := smallMount(t)
	synctest.Test(t, func(t *testing.T) {
		const away = "n3"
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.FlushBytes = 256 << 10
			if cfg.NodeID == away {
				cfg.DataDir = dir + "/data"
			}
		})
		c.open("n1", "n2", away)
		c.eventually("another leader", func() bool { return c.leader().cfg.NodeID != away || c.leader().TransferLeadership(t.Context()) != nil })
		n := c.leader()
		l := startLoad(t, n)
		for range 20 {
			must(t, n, l.batch(100, 1000))
		}
		c.agree()
		filler, before := fillUp(t, dir), n.store.Stats().Flushes
		for range 30 {
			must(t, n, l.batch(20, 2000))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		if flushes := n.store.Stats().Flushes - before; flushes < 3 {
			t.Errorf("%d flushes came meanwhile: this tests nothing", flushes)
		}
		if p := n.transport.peer(c.nodes[away].raftID()); p.snapshot > 0 || p.receives || c.nodes[away].Status().ReceiveError != "" {
			t.Errorf("it is sent a snapshot: %+v, %s", p, c.nodes[away].Status().ReceiveError)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		c.agree()
		c.closeAll()
	})
}

// A life may be so short that one flush comes in it, and the log is cut all the same.
func TestRetention_goesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flush, lives = 64 << 10, 10
		c := newCluster(t, 1, func(cfg *Config) { cfg.FlushBytes, cfg.FlushInterval, cfg.SegmentSize = flush, time.Minute, 32<<10 })
		c.open("n1")
		l := startLoad(t, c.leader())
		for range lives {
			for range 10 { // more than one flush, less than two
				must(t, c.leader(), l.batch(1, flush/7))
			}
			time.Sleep(5 * time.Minute) // all is flushed
			c.close("n1")
			c.open("n1")
		}
		n := c.leader()
		first, err := n.logs.FirstIndex()
		if last := n.Status().LastIndex; err != nil || last-first > 40 || last-first < 6 {
			t.Errorf("after %d lives of ten entries and more the log goes from %d to %d: %v", lives, first, last, err)
		}
	})
}

// What a read leaves in the log takes room there, though it has next to no data.
func TestRetention_countsWhatSmallEntriesTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flush, reads = 64 << 10, 8000
		c := newCluster(t, 1, func(cfg *Config) { cfg.FlushBytes, cfg.SegmentSize = flush, 32<<10 })
		c.open("n1")
		n := c.leader()
		must(t, n, raftfsm.RaiseLevel{Level: storage.NewestLevel})
		startLoad(t, n)
		for i := range reads {
			if err := n.BarrierAt(t.Context(), int64(i)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		first, err := n.logs.FirstIndex()
		if kept := n.Status().LastIndex - first; err != nil || kept > reads/2 {
			t.Errorf("the log of %d reads has %d entries: %v", reads, kept, err)
		}
	})
}
