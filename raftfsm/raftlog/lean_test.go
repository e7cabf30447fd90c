package raftlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// A countedLog counts what is read of it.
type countedLog struct {
	raft.LogStore
	reads int
}

func (l *countedLog) GetLog(index uint64, e *raft.Log) error {
	l.reads++
	return l.LogStore.GetLog(index, e)
}

func openTestLeanLog(t *testing.T) (*Lean, *countedLog) {
	t.Helper()
	s, err := Open(Config{Dir: t.TempDir(), Kind: WAL, SegmentSize: 64 << 10, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	counted := &countedLog{LogStore: s.LogStore}
	s.LogStore = counted
	return NewLean(s), counted
}

func TestLeanLog_givesRaftCommandsWithoutTheirData(t *testing.T) {
	l, counted := openTestLeanLog(t)
	first := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")}
	if err := l.StoreLog(first); err != nil {
		t.Fatal(err)
	}
	const last, size = 50, 300 << 10
	for i := uint64(2); i <= last; i++ {
		if err := l.StoreLog(entry(i, size)); err != nil {
			t.Fatal(err)
		}
	}
	if l.bytes > newestBytes || l.bytes < newestBytes/2 {
		t.Errorf("%d bytes of the newest entries in memory, want up to %d", l.bytes, newestBytes)
	}
	again := NewLean(l.Store) // after a restart
	for _, log := range []*Lean{l, again} {
		for range 2 {
			for i := uint64(1); i <= last; i++ {
				var e raft.Log
				if err := log.GetLog(i, &e); err != nil || e.Index != i || e.Term != 1 || isLean(&e) != (i > 1) || i == 1 && string(e.Data) != "members" {
					t.Fatalf("entry %d: %+v, %v", i, e, err)
				}
			}
		}
		for i := uint64(2); i <= last; i++ {
			if e, err := log.Whole(&raft.Log{Index: i, Term: 1}); err != nil || !bytes.Equal(e.Data, entry(i, size).Data) {
				t.Fatalf("read entry %d: %v", i, err)
			}
		}
	}
	// The configuration each time; the rest once by the second, to know it, and
	// once by each when its data were wanted and not in memory.
	if most := 4 + (last - 1) + 2*(last-1); counted.reads > most {
		t.Errorf("%d entries read from the log, want at most %d", counted.reads, most)
	}
}

// Raft sends a snapshot when it does not find an entry.
func TestLeanLog_forgetsWhatIsCut(t *testing.T) {
	l, _ := openTestLeanLog(t)
	for i := range uint64(20) {
		if err := l.StoreLog(entry(i+1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	l.KeepAfter(20)
	if err := l.DeleteRange(1, 5); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteRange(15, 20); err != nil {
		t.Fatal(err)
	}
	for index, want := range map[uint64]error{5: raft.ErrLogNotFound, 6: nil, 14: nil, 15: raft.ErrLogNotFound} {
		if err := l.GetLog(index, new(raft.Log)); !errors.Is(err, want) {
			t.Errorf("entry %d: %v, want %v", index, err, want)
		}
	}
	other := entry(15, 100)
	other.Term = 2
	if err := l.StoreLog(other); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Whole(&raft.Log{Index: 15, Term: 1}); err == nil {
		t.Error("read an entry of another term")
	}
	if e, err := l.Whole(&raft.Log{Index: 15, Term: 2}); err != nil || e.Term != 2 {
		t.Errorf("read %+v, %v", e, err)
	}
}
