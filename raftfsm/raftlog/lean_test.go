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

// The entry before a request is all that a leader reads while nothing happens. After an election it is no command.
func TestLeanLog_readsNothingThatWasStoredLately(t *testing.T) {
	l, counted := openTestLeanLog(t)
	stored := []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")},
		{Index: 2, Term: 1, Type: raft.LogNoop},
		{Index: 3, Term: 1, Type: raft.LogBarrier},
	}
	if err := l.StoreLogs(stored); err != nil {
		t.Fatal(err)
	}
	l.KeepAfter(1)
	for _, want := range stored {
		var e raft.Log
		if err := l.GetLog(want.Index, &e); err != nil || e.Type != want.Type || e.Term != want.Term || !bytes.Equal(e.Data, want.Data) {
			t.Errorf("entry %d: %+v, %v", want.Index, e, err)
		}
	}
	if counted.reads != 0 {
		t.Errorf("%d entries were read from the log", counted.reads)
	}
	if err := l.DeleteRange(1, 1); err != nil {
		t.Fatal(err)
	}
	if _ = l.GetLog(1, new(raft.Log)); counted.reads != 1 { // the log knows whether it has it
		t.Error("one that is cut is told from memory")
	}
}

// What was applied here stays in memory for followers that do not have it yet.
func TestLeanLog_keepsWhatIsToBeSentOrApplied(t *testing.T) {
	l, counted := openTestLeanLog(t)
	const last, size = 20, 1000
	for i := range uint64(last) {
		if err := l.StoreLog(entry(i+1, size)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ applied, sent, first uint64 }{
		{4, 0, 1}, {5, 3, 4}, {6, 3, 4}, {7, last, 8}, {19, 12, 13}, {last, last, last},
	} {
		if _, err := l.Next(&raft.Log{Index: tt.applied, Term: 1}, tt.sent); err != nil {
			t.Fatal(err)
		}
		if kept := int(last - tt.first + 1); len(l.newest) != kept || l.newest[0].Index != tt.first || l.bytes != kept*(size+entryOverhead) {
			t.Errorf("applied to %d, sent to %d: %d are kept of %d bytes, want those from %d on", tt.applied, tt.sent, len(l.newest), l.bytes, tt.first)
		}
	}
	if counted.reads != 0 {
		t.Errorf("%d entries were read from the log", counted.reads)
	}
	if e, err := l.Whole(&raft.Log{Index: 2, Term: 1}); err != nil || !bytes.Equal(e.Data, entry(2, size).Data) || counted.reads != 1 {
		t.Errorf("one that is not kept: %v, %d reads", err, counted.reads)
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
	// Of the one with which the schedule ends, a leader is told whether it agrees.
	l.saved = func() (index, term uint64) { return 5, 7 }
	var saved raft.Log
	if err := l.GetLog(5, &saved); err != nil || saved.Index != 5 || saved.Term != 7 || !isLean(&saved) {
		t.Errorf("the entry with which the schedule ends: %+v, %v", saved, err)
	}
	if err := l.GetLog(4, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("the one before: %v", err)
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

// A start reads all that is to be applied for changes of members, and applies it then.
func TestLeanLog_readsOnceWhatAStartApplies(t *testing.T) {
	l, counted := openTestLeanLog(t)
	const last, size = 100, 400 << 10 // more than is kept
	for i := range uint64(last) {
		if err := l.StoreLog(entry(i+1, size)); err != nil {
			t.Fatal(err)
		}
	}
	l, counted.reads = NewLean(l.Store), 0                                // after a restart
	for _, index := range append([]uint64{last}, ascending(1, last)...) { // as NewRaft does
		var e raft.Log
		if err := l.GetLog(index, &e); err != nil || e.Index != index || !isLean(&e) {
			t.Fatalf("entry %d: %+v, %v", index, e, err)
		}
	}
	if l.aheadBytes > startBytes || l.aheadBytes < startBytes/2 {
		t.Errorf("%d bytes are kept, want up to %d", l.aheadBytes, startBytes)
	}
	if err := l.StoreLog(entry(last+1, size)); err != nil { // as a new leader does
		t.Fatal(err)
	}
	for _, index := range ascending(1, last+1) {
		if e, err := l.Next(&raft.Log{Index: index, Term: 1}, 0); err != nil || !bytes.Equal(e.Data, entry(index, size).Data) {
			t.Fatalf("apply entry %d: %v", index, err)
		}
	}
	const kept = startBytes / (size + entryOverhead)
	if most := last + (last - kept); counted.reads > most {
		t.Errorf("%d entries read from the log, want at most %d", counted.reads, most)
	}
	if l.aheadBytes != 0 || len(l.ahead) != 0 {
		t.Errorf("%d bytes of %d entries are kept when all are applied", l.aheadBytes, len(l.ahead))
	}
}

// What the leader has otherwise takes the place of what the start has read.
func TestLeanLog_appliesWhatTookThePlaceOfTheEnd(t *testing.T) {
	l, _ := openTestLeanLog(t)
	for i := range uint64(10) {
		if err := l.StoreLog(entry(i+1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	l = NewLean(l.Store)
	for _, index := range ascending(1, 10) {
		if err := l.GetLog(index, new(raft.Log)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.DeleteRange(6, 10); err != nil {
		t.Fatal(err)
	}
	other := entry(6, 200)
	other.Term = 2
	if err := l.StoreLog(other); err != nil {
		t.Fatal(err)
	}
	for index, term := range map[uint64]uint64{5: 1, 6: 2} {
		if e, err := l.Next(&raft.Log{Index: index, Term: term}, 0); err != nil || e.Index != index || e.Term != term {
			t.Errorf("apply entry %d: %+v, %v", index, e, err)
		}
	}
	if e, err := l.Next(&raft.Log{Index: 7, Term: 1}, 0); err == nil {
		t.Errorf("applied %+v, which was cut", e)
	}
}

// ascending returns the indexes from first to last.
func ascending(first, last uint64) []uint64 {
	var all []uint64
	for i := first; i <= last; i++ {
		all = append(all, i)
	}
	return all
}
