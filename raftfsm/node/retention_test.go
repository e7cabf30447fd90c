package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
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
			if got := tt.peer.needs(1000, 900, time.Second, tt.spacious); got != tt.want {
				t.Errorf("%s: the log after %d is kept, want %d", tt.name, got, tt.want)
			}
		}
	})
}
