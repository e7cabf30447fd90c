package raftfsm

import "sync"

// unsavedFlushes is how many flushes' worth of log may wait for the disk before
// nothing more is accepted: what waits is in memory.
const unsavedFlushes = 4

// heldFlushes is the same for Apply, on followers too, which nobody asks for
// room: above it entries wait for the flush that is being written.
const heldFlushes = 2 * unsavedFlushes

// A backlog counts the log that was applied and is in memory alone, frozen or
// not. The FSM's goroutine adds and freezes, the one that flushes does the rest.
type backlog struct {
	flushAt int64         // bytes beyond the frozen ones that make it due
	due     chan struct{} // signalled then

	mu      sync.Mutex
	bytes   int64
	frozen  int64         // of bytes: what the present flush will have saved
	writing chan struct{} // closed when the present flush ends, nil when none writes
	err     error         // of the last flush
}

func newBacklog(flushAt int64) *backlog {
	return &backlog{flushAt: flushAt, due: make(chan struct{}, 1)}
}

func (b *backlog) add(bytes int) {
	b.mu.Lock()
	b.bytes += int64(bytes)
	due := b.bytes-b.frozen >= b.flushAt
	b.mu.Unlock()
	if !due {
		return
	}
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// admit returns when one more entry may be applied: it bounds memory. It waits
// only for a flush that is being written, which needs neither the FSM nor raft's
// main loop; one that has only frozen yet needs both. The error is the last
// flush's, when memory is full and no flush gets through.
func (b *backlog) admit() error {
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
func (b *backlog) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = b.bytes
}

// begin says that what is frozen is being written, end that it was or was not.
func (b *backlog) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing = make(chan struct{})
}

func (b *backlog) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.writing)
	b.writing, b.err = nil, err
	if err == nil {
		b.bytes -= b.frozen
	}
	b.frozen = 0
}

// release gives up a flush that was not begun.
func (b *backlog) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = 0
}

// clear forgets all: a received snapshot took its place.
func (b *backlog) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes, b.frozen = 0, 0
}

// unsaved returns the bytes that are in memory alone.
func (b *backlog) unsaved() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// failure returns the error of the last flush.
func (b *backlog) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
