package raftfsm

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/storage"
)

func isDue(b *Backlog) bool {
	select {
	case <-b.due:
		return true
	default:
		return false
	}
}

func unsaved(b *Backlog) int64 {
	bytes, _ := b.Unsaved()
	return bytes
}

func TestBacklog_countsWhatIsBeingWrittenUntilItIsOnDisk(t *testing.T) {
	b := newBacklog(100)
	b.add(99)
	if isDue(b) {
		t.Error("due at 99 of 100 bytes")
	}
	b.add(1)
	if !isDue(b) {
		t.Error("not due at 100 bytes")
	}
	b.freeze()
	b.begin()
	b.add(50)
	if got := unsaved(b); got != 150 || isDue(b) {
		t.Errorf("%d bytes while 100 of 150 are written, want 150, none due again", got)
	}
	b.end(nil)
	if got := unsaved(b); got != 50 {
		t.Errorf("%d bytes after the flush, want 50", got)
	}
	b.freeze()
	b.begin()
	b.end(errors.New("disk"))
	if got := unsaved(b); got != 50 || b.Failure() == nil {
		t.Errorf("%d bytes and %v after a flush that failed, want 50 and its error", got, b.Failure())
	}
	// A received snapshot takes the place of what a flush has already written.
	b.freeze()
	b.begin()
	b.clear()
	b.end(nil)
	if got := unsaved(b); got != 0 {
		t.Errorf("%d bytes after a received snapshot, want 0", got)
	}
}

func TestBacklog_letsApplyWaitForAFlushThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(100)
		b.add(heldFlushes * 100)
		b.freeze()
		if err := b.admit(); err != nil {
			t.Errorf("waited for a flush that needs it, or %v", err)
		}
		b.begin()
		admitted := make(chan error, 1)
		go func() { admitted <- b.admit() }()
		synctest.Wait()
		if len(admitted) > 0 {
			t.Error("did not wait")
		}
		b.end(nil)
		if err := <-admitted; err != nil {
			t.Errorf("after the flush: %v", err)
		}
	})
}

func TestFSM_stopsWhenMemoryIsFullAndNoFlushGetsThrough(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	var failure error
	f := NewFSM(s, fsmConfig(10, func(err error) { failure = err }))
	knownPosition(t, f, 0)
	for from := int64(0); unsaved(f.backlog) < heldFlushes*10; from++ {
		apply(t, f, ingestOf(from, 1))
	}
	f.backlog.begin()
	noDisk := errors.New("no disk")
	f.backlog.end(noDisk)
	before := s.Pending()
	if err, _ := f.Apply(&raft.Log{Index: f.applied + 1, Term: 1, Data: samples["ack"].append(nil)}).(error); !errors.Is(err, noDisk) || !errors.Is(failure, noDisk) {
		t.Errorf("got %v, failed with %v, want the flush's error", err, failure)
	}
	if s.Pending() != before {
		t.Error("applied it all the same")
	}
}

// A follower applies what it has while a snapshot is received, whose commit overtakes the flush that is being
// written. The node goes on, however full its memory is: the snapshot empties it.
func TestBacklog_aReceivedSnapshotIsNoFailedFlush(t *testing.T) {
	b := newBacklog(100)
	b.add(heldFlushes * 100)
	b.freeze()
	b.begin()
	b.end(fmt.Errorf("flush: %w", storage.ErrGeneration))
	if err := errors.Join(b.admit(), b.Failure()); err != nil {
		t.Errorf("memory that is about to be emptied: %v", err)
	}
	b.begin()
	b.end(storage.ErrDiskFull)
	if err := b.admit(); !errors.Is(err, storage.ErrDiskFull) {
		t.Errorf("memory is full, and so is the disk: %v", err)
	}
}
