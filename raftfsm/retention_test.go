package raftfsm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

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

// Raft cuts from the end that the log has after the flush.
func TestSink_reckonsTheLogToKeepAfterTheFlush(t *testing.T) {
	f := newTestFSM(t)
	var told []uint64
	shots := &snapshots{store: f.store, retain: func(before uint64) { told = append(told, before) }}
	for _, want := range []uint64{0, 1} {
		knownPosition(t, f, 0)
		m, err := f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		k, err := shots.Create(raft.SnapshotVersionMax, f.applied, 1, raft.Configuration{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Persist(k); err != nil || len(told) != int(want) {
			t.Fatalf("%v, told %v before the flush was done", err, told)
		}
		if err := k.Close(); err != nil || len(told) != int(want)+1 || told[want] != want {
			t.Errorf("%v, told %v, want %d last", err, told, want)
		}
		m.Release()
	}
}

// Raft cuts a number of entries back from the log's end, which has moved on.
func TestLogStore_isCutNoFurtherThanAllowed(t *testing.T) {
	for _, kind := range []string{LogWAL, LogBoltDB} {
		s, err := openLog(t.TempDir(), Config{Log: kind, SegmentSize: testSegmentSize, Logger: testLogger(t)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range uint64(20) {
			if err := s.StoreLog(entry(i+1, 100)); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct{ floor, from, to, wantFirst, wantLast uint64 }{
			{0, 1, 5, 1, 20},
			{5, 1, 3, 4, 20},
			{5, 4, 9, 6, 20},
			{5, 6, 9, 6, 20},
			{5, 18, 20, 6, 17}, // the end differs from the leader's
			{5, 6, 17, 0, 0},   // a snapshot was received
		} {
			s.keepAfter(step.floor)
			if err := s.DeleteRange(step.from, step.to); err != nil {
				t.Fatal(err)
			}
			first, _ := s.FirstIndex()
			if last, _ := s.LastIndex(); first != step.wantFirst || last != step.wantLast {
				t.Errorf("%s, cut %+v: it has %d to %d", kind, step, first, last)
			}
		}
	}
}
