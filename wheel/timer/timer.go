package timer

import (
	"time"

	"github.com/carillonmq/carillon/wheel"
)

// State is what has become of a timer.
type State uint8

const (
	_       State = iota // of a zero Timer
	Pending              // set, and its callback has not begun
	Fired                // its callback has begun
	Stopped              // removed, drained, or its service stopped: it will not fire
	Dropped              // was due while all workers were busy, with WhenFull Drop
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Fired:
		return "fired"
	case Stopped:
		return "stopped"
	case Dropped:
		return "dropped"
	default:
		return "unset"
	}
}

// Timer is one timer of a Service, from Set or Every until it fires or is stopped. Its methods may
// be called by any goroutine, and at any time: a timer that has ended keeps its state, and never
// stands for a later one of the same key.
type Timer[K comparable, V any] struct {
	service *Service[K, V]
	key     K

	// Guarded by the service's mu.
	value   V
	handle  wheel.Handle // in the service's queue; 0 once it has come out
	due     int64        // ms
	period  int64        // ms; 0: fires once
	state   State
	waiting bool   // due, and in line for a worker
	running bool   // its callback has begun and not returned
	place   uint32 // in line, while waiting
}

// State returns what has become of the timer. A periodic timer is Pending until it is stopped.
func (t *Timer[K, V]) State() State {
	if t == nil || t.service == nil {
		return State(0)
	}
	t.service.mu.Lock()
	defer t.service.mu.Unlock()
	return t.state
}

// Stop reports whether it stopped the timer: true means that its callback will not begin any more,
// false that it had begun, or that the timer had ended otherwise. Stop does not wait for a
// callback.
func (t *Timer[K, V]) Stop() bool {
	if t == nil || t.service == nil {
		return false
	}
	t.service.mu.Lock()
	defer t.service.mu.Unlock()
	if t.state != Pending {
		return false
	}
	t.service.forget(t, Stopped)
	return true
}

func (t *Timer[K, V]) event() Event[K, V] {
	return Event[K, V]{Key: t.key, Value: t.value, Due: time.UnixMilli(t.due)}
}

// end gives the timer its last state. Whoever keeps it does not keep its value.
func (t *Timer[K, V]) end(state State) {
	var none V
	t.value, t.handle, t.waiting, t.state = none, 0, false, state
}
