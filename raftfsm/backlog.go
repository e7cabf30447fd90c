package raftfsm

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/storage"
)

// unsavedFlushes is how many flushes' worth of log may wait for the disk before
// nothing more is accepted: what waits is in memory.
const unsavedFlushes = 4

// heldFlushes is the same for Apply, on followers too, which nobody asks for
// room: above it entries wait for the flush that is being written.
const heldFlushes = 2 * unsavedFlushes

// entryBytes is what an entry takes in the log besides its data.
const entryBytes = 64

// LogBytes returns what an entry takes in the log, in bytes.
func LogBytes(l *raft.Log) int { return entryBytes + len(l.Data) }

// A Backlog counts the log that was applied and is in memory alone, frozen or
// not. The FSM's goroutine adds and freezes, the one that flushes does the rest.
type Backlog struct {
	flushAt int64         // bytes beyond the frozen ones that make it due
	due     chan struct{} // signalled then

	mu      sync.Mutex
	bytes   int64
	frozen  int64         // of bytes: what the present flush will have saved
	saved   int64         // what flushes have saved
	writing chan struct{} // closed when the present flush ends, nil when none writes
	err     error         // of the last flush
}

func newBacklog(flushAt int64) *Backlog {
	return &Backlog{flushAt: flushAt, due: make(chan struct{}, 1)}
}

func (b *Backlog) add(bytes int) {
	b.mu.Lock()
	b.bytes += int64(bytes)
	due := b.bytes-b.frozen >= b.flushAt
	b.mu.Unlock()
	if due {
		b.hasten()
	}
}

// hasten has the next flush be due.
func (b *Backlog) hasten() {
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// admit returns when one more entry may be applied: it bounds memory. It waits
// only for a flush that is being written, which needs neither the FSM nor raft's
// main loop; one that has only frozen yet needs both. The error is the last
// flush's, when memory is full and no flush gets through.
func (b *Backlog) admit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if writing := b.writing; b.bytes >= heldFlushes*b.flushAt && writing != nil {
		b.mu.Unlock()
		<-writing
		b.mu.Lock()
	}
	if b.bytes >= heldFlushes*b.flushAt {
		return b.err
	}
	return nil
}

// freeze says that what was applied so far belongs to the next flush.
func (b *Backlog) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = b.bytes
}

// begin says that what is frozen is being written, end that it was or was not. That a received snapshot was
// quicker is no failure of the disk: what is in memory is forgotten when raft restores it, and until then an entry
// may be applied that is part of it.
func (b *Backlog) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing = make(chan struct{})
}

func (b *Backlog) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.writing)
	b.writing, b.err = nil, err
	if errors.Is(err, storage.ErrGeneration) {
		b.err = nil
	}
	if err == nil {
		b.bytes -= b.frozen
		b.saved += b.frozen
	}
	b.frozen = 0
}

// release gives up a flush that was not begun.
func (b *Backlog) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = 0
}

// clear forgets all: a received snapshot took its place.
func (b *Backlog) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes, b.frozen = 0, 0
}

// Due is signalled when a flush is due, perhaps once too often.
func (b *Backlog) Due() <-chan struct{} { return b.due }

// Unsaved returns the bytes that are in memory alone, and whether they are so many
// that nothing more should be accepted.
func (b *Backlog) Unsaved() (bytes int64, tooMany bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes, b.bytes > unsavedFlushes*b.flushAt
}

// Saved returns the bytes that flushes have saved since the start.
func (b *Backlog) Saved() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.saved
}

// Failure returns the error of the last flush.
func (b *Backlog) Failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
