package raftfsm

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// A failingLog fails to append or to cut when told so.
type failingLog struct {
	raft.LogStore
	appends, cuts error
}

func (l *failingLog) StoreLogs(logs []*raft.Log) error {
	if l.appends != nil {
		return l.appends
	}
	return l.LogStore.StoreLogs(logs)
}

func (l *failingLog) DeleteRange(from, to uint64) error {
	if l.cuts != nil {
		return l.cuts
	}
	return l.LogStore.DeleteRange(from, to)
}

// Raft tries a failed append again, but not from the end that a cut has left, and
// not the cut of a log that a snapshot has replaced.
func TestLogStore_stopsTheNodeWhereRaftWouldNotTryAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps func(s *logStore, l *failingLog)
		stops bool
	}{
		{"an append", func(s *logStore, l *failingLog) { l.appends = syscall.ENOSPC; _ = s.StoreLog(entry(11, 1)) }, false},
		{"a cut of the beginning", func(s *logStore, l *failingLog) { l.cuts = syscall.ENOSPC; _ = s.DeleteRange(1, 4) }, false},
		{"a cut of the end", func(s *logStore, l *failingLog) { l.cuts = syscall.ENOSPC; _ = s.DeleteRange(6, 10) }, true},
		{"a cut of all", func(s *logStore, l *failingLog) { l.cuts = syscall.ENOSPC; _ = s.DeleteRange(1, 10) }, true},
		{"an append after a cut of the end", func(s *logStore, l *failingLog) {
			_ = s.DeleteRange(6, 10)
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(6, 1))
		}, true},
		{"an append after a cut of all for a snapshot", func(s *logStore, l *failingLog) {
			s.saved = func() uint64 { return 14 }
			_ = s.DeleteRange(1, 10)
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(15, 1))
		}, false},
		{"an append after a cut of all that follows a snapshot", func(s *logStore, l *failingLog) {
			_ = s.DeleteRange(1, 10)
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(1, 1))
		}, true},
		{"a note that the log is cleared", func(s *logStore, l *failingLog) {
			s.clearing = func(uint64) error { return syscall.ENOSPC }
			_ = s.DeleteRange(1, 10)
		}, true},
		{"an append after one that followed a cut", func(s *logStore, l *failingLog) {
			_ = s.DeleteRange(6, 10)
			_ = s.StoreLog(entry(6, 1))
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(7, 1))
		}, false},
		{"an append to a damaged log", func(s *logStore, l *failingLog) { l.appends = ErrDamaged; _ = s.StoreLog(entry(11, 1)) }, true},
	} {
		var failure error
		s, err := openLog(t.TempDir(), Config{Log: LogWAL, SegmentSize: testSegmentSize, Logger: testLogger(t)}, func(err error) { failure = err })
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(10) {
			if err := s.StoreLog(entry(i+1, 10)); err != nil {
				t.Fatal(err)
			}
		}
		s.keepAfter(10)
		l := &failingLog{LogStore: s.LogStore}
		s.LogStore = l
		tt.steps(s, l)
		if stops := failure != nil; stops != tt.stops {
			t.Errorf("%s fails: stopped with %v", tt.name, failure)
		} else if stops && !errors.Is(failure, ErrDamaged) && !strings.Contains(failure.Error(), "start the node again") {
			t.Errorf("%s: no remedy: %v", tt.name, failure)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
