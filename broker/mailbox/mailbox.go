// Package mailbox lets goroutines talk to each other without ever blocking the sender.
package mailbox

import "sync"

// A Mailbox carries values from any number of goroutines to one reader. Put never
// blocks, so two goroutines can have a mailbox each for the other without a
// deadlock; what bounds it is the budget that its senders keep (see broker/DESIGN.md).
type Mailbox[T any] struct {
	mu     sync.Mutex
	values []T
	ready  chan struct{} // holds a token whenever values may be non-empty
}

// New returns an empty mailbox.
func New[T any]() *Mailbox[T] {
	return &Mailbox[T]{ready: make(chan struct{}, 1)}
}

// Put appends the values and wakes the reader.
func (m *Mailbox[T]) Put(values ...T) {
	m.mu.Lock()
	m.values = append(m.values, values...)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// Ready is received from before Take; one token may stand for several Puts, and
// after a token there may be nothing to take.
func (m *Mailbox[T]) Ready() <-chan struct{} { return m.ready }

// MostReused is the capacity, in values, up to which a buffer is used again: thousands of
// mailboxes must not keep for ever what one burst took.
const MostReused = 4096

// Take returns all that waits, oldest first, and empties the mailbox. The slice
// buf, of an earlier Take, is kept for later Puts unless it is large; it may be nil.
func (m *Mailbox[T]) Take(buf []T) []T {
	if cap(buf) > MostReused {
		buf = nil
	}
	clear(buf)
	m.mu.Lock()
	defer m.mu.Unlock()
	values := m.values
	m.values = buf[:0]
	return values
}
