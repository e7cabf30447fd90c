package timer

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/carillonmq/carillon/wheel"
)

const (
	defaultMaxSleep = time.Second
	defaultBatch    = 256 // timers that Pop returns when the caller's buffer has no room
	maintainChunks  = 16  // of the wheel's slots, split per idle Pop: some ten microseconds
)

// QueueConfig configures a DelayQueue. Its zero value is ready to use.
type QueueConfig struct {
	// Now is the clock that deadlines are measured by; nil means time.Now. The queue reads it
	// rounded down to the millisecond.
	Now func() time.Time

	// Start is the earliest deadline expected, in epoch milliseconds; 0 means now. An owner that
	// first fills the queue with a backlog from the past starts it there: the wheel then holds the
	// backlog as cheaply as what is to come.
	Start int64

	// MaxSleep caps one sleep; 0 or less means one second. Go's timers follow the monotonic clock:
	// a sleeper does not see that the wall clock was set forward before it wakes.
	MaxSleep time.Duration

	// OnStep, if set, is called when the clock was set forward (positive) or back (negative) against
	// the monotonic clock by a quarter of a second or more. Pop calls it, on the owner's goroutine.
	OnStep func(step time.Duration)
}

// DelayQueue holds values until they are due: a [wheel.Wheel] with a clock and a wake-up.
//
// It belongs to one goroutine, its owner, and has no lock. The owner waits for [DelayQueue.C]
// beside its other channels and calls [DelayQueue.Pop] when it fires. Deadlines are epoch
// milliseconds by the configured clock. Nothing comes out before its deadline by that clock, not
// even after the clock has been set back, and values come out ordered by (deadline, adding), also
// those that were past due when they were added.
//
// Make one with NewDelayQueue; a zero DelayQueue refuses every Add with ErrNotMade.
type DelayQueue[T any] struct {
	cfg   QueueConfig
	timer *time.Timer
	steps stepDetector

	wheel  *wheel.Wheel[T] // deadlines from its cursor on
	late   lateTimers[T]   // deadlines behind the cursor, so before everything in the wheel
	serial uint64          // the last name given to a wheel or a late timer
	epoch  uint64          // the present wheel's name
	untidy bool            // the wheel has more to split before it is worth sleeping
}

// Handle names one timer of one DelayQueue, for Cancel and Move. It is worth nothing once the timer
// has come out, was cancelled, or was moved (Move returns the new one); a stale handle, or the zero
// one, is refused and never stands for another timer.
type Handle struct {
	serial uint64 // the wheel's epoch, or the late timer's own number
	inner  wheel.Handle
}

// NewDelayQueue returns an empty queue, owned by the goroutine that will use it.
func NewDelayQueue[T any](cfg QueueConfig) *DelayQueue[T] {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxSleep <= 0 {
		cfg.MaxSleep = defaultMaxSleep
	}
	now := cfg.Now()
	start := now.UnixMilli()
	if cfg.Start > 0 {
		start = cfg.Start
	}
	sleeper := time.NewTimer(cfg.MaxSleep)
	sleeper.Stop()
	return &DelayQueue[T]{
		cfg:    cfg,
		timer:  sleeper,
		steps:  newStepDetector(now),
		wheel:  wheel.New[T](uint64(max(start, 0))),
		serial: 1,
		epoch:  1,
	}
}

// Add puts v into the queue until due, in epoch milliseconds (see [CeilMilli]). A deadline in the
// past is due at once, and is returned by Pop before what is due later. A negative one, or one
// beyond [wheel.MaxTick], is refused with ErrDeadline; a wheel that is full, with its own error.
func (q *DelayQueue[T]) Add(due int64, v T) (Handle, error) {
	if q.wheel == nil {
		return Handle{}, ErrNotMade
	}
	if due < 0 || uint64(due) > wheel.MaxTick {
		return Handle{}, fmt.Errorf("%w: %d ms, want 0 to %d", ErrDeadline, due, uint64(wheel.MaxTick))
	}
	when := uint64(due)
	if when < q.wheel.Cursor() {
		q.serial++
		q.late.add(when, q.serial, v)
		return Handle{serial: q.serial}, nil
	}
	h, err := q.wheel.Add(when, v)
	if err != nil {
		return Handle{}, fmt.Errorf("add to wheel: %w", err)
	}
	return Handle{serial: q.epoch, inner: h}, nil
}

// Cancel takes a timer out and returns its value. It reports false when the timer has come out or
// was cancelled or moved before.
func (q *DelayQueue[T]) Cancel(h Handle) (v T, ok bool) {
	switch {
	case q.wheel == nil:
		return v, false
	case h.serial == q.epoch:
		return q.wheel.Cancel(h.inner)
	default:
		return q.late.cancel(h.serial)
	}
}

// Move gives a pending timer another deadline and returns its new handle; the old one is stale from
// then on, though it may be equal. Among timers of the new deadline it counts as added now. It
// reports false, and changes nothing, when h is stale or due out of range.
func (q *DelayQueue[T]) Move(h Handle, due int64) (Handle, bool) {
	if q.wheel == nil || due < 0 || uint64(due) > wheel.MaxTick {
		return Handle{}, false
	}
	if h.serial == q.epoch && uint64(due) >= q.wheel.Cursor() {
		inner, ok := q.wheel.Move(h.inner, uint64(due))
		if !ok {
			return Handle{}, false
		}
		return Handle{serial: q.epoch, inner: inner}, true
	}
	v, ok := q.Cancel(h)
	if !ok {
		return Handle{}, false
	}
	moved, err := q.Add(due, v)
	return moved, err == nil
}

// Len returns the number of timers pending.
func (q *DelayQueue[T]) Len() int {
	if q.wheel == nil {
		return 0
	}
	return q.wheel.Len() + len(q.late.heap)
}

// Next returns the earliest deadline pending, in epoch milliseconds, or one before it when timers
// were cancelled or moved; never a later one. It reports false when the queue is empty.
func (q *DelayQueue[T]) Next() (due int64, ok bool) {
	if q.wheel == nil {
		return 0, false
	}
	when, ok := q.late.next()
	if !ok {
		when, ok = q.wheel.Next()
	}
	return int64(when), ok
}

// C arms the queue's wake-up for the earliest deadline and returns the channel that it will be
// sent on. Call it anew each time round the owner's select, after the last Add, and Pop when it
// fires: it also fires when nothing is due yet (the sleep is capped, and long slots of the wheel
// are split ahead of time in small pieces). It never fires while the queue is empty.
func (q *DelayQueue[T]) C() <-chan time.Time {
	if q.wheel == nil {
		return nil
	}
	due, ok := q.Next()
	switch {
	case !ok:
		q.timer.Stop()
	case q.untidy:
		q.timer.Reset(0)
	default:
		wait := time.UnixMilli(due).Sub(q.cfg.Now())
		q.timer.Reset(min(max(wait, 0), q.cfg.MaxSleep))
	}
	return q.timer.C
}

// Pop takes out what is due, appends it to buf's spare capacity (to a new buffer of 256 when it has
// none), and reports whether more is due. Call it until it reports false. Each When is the deadline
// that was asked for, even if that had passed. Pop never blocks; one call's work is bounded by the
// room in buf.
func (q *DelayQueue[T]) Pop(buf []wheel.Expired[T]) (due []wheel.Expired[T], more bool) {
	if q.wheel == nil {
		return buf, false
	}
	if len(buf) == cap(buf) {
		buf = slices.Grow(buf, defaultBatch)
	}
	now := q.readClock()
	due = q.late.pop(now, buf)
	if len(due) == cap(due) {
		next, ok := q.Next()
		return due, ok && uint64(next) <= now
	}
	if now < q.wheel.Cursor() {
		return due, false // set back: all of the wheel is still to come
	}
	due, more = q.wheel.Advance(now, due)
	if !more {
		q.untidy = q.wheel.Maintain(now, maintainChunks)
	}
	return due, more
}

// Drain yields every pending timer, in no order, and leaves the queue empty.
func (q *DelayQueue[T]) Drain() iter.Seq[wheel.Expired[T]] {
	return func(yield func(wheel.Expired[T]) bool) {
		if q.wheel == nil {
			return
		}
		late := q.late
		q.late = lateTimers[T]{}
		pending := q.wheel
		q.renew()
		for _, t := range late.heap {
			if !yield(wheel.Expired[T]{When: t.due, Value: t.value}) {
				return
			}
		}
		pending.Drain()(yield)
	}
}

// readClock returns the time in ms, rounded down, and reports steps.
func (q *DelayQueue[T]) readClock() uint64 {
	wall := q.cfg.Now()
	if step := q.steps.observe(wall); step != 0 && q.cfg.OnStep != nil {
		q.cfg.OnStep(step)
	}
	now := uint64(max(wall.UnixMilli(), 0))
	if now < q.wheel.Cursor() && q.Len() == 0 {
		q.renew() // an empty queue forgets the future that it was shown
	}
	return now
}

// renew replaces the wheel by an empty one at the present time and retires its handles.
func (q *DelayQueue[T]) renew() {
	q.serial++
	q.epoch = q.serial
	q.wheel = wheel.New[T](uint64(max(q.cfg.Now().UnixMilli(), 0)))
	q.untidy = false
}
