package timer

import (
	"fmt"
	"iter"
	"time"

	"github.com/carillonmq/carillon/wheel"
)

const (
	defaultMaxSleep = time.Second
	maintainChunks  = 16 // of 63 timers, split per idle Pop: some ten microseconds
)

// QueueConfig configures a DelayQueue. Its zero value is ready to use.
type QueueConfig struct {
	// Now is the clock that deadlines are measured by; nil means time.Now. The queue reads it
	// rounded down to the millisecond.
	Now func() time.Time

	// Start is the earliest deadline expected, in epoch milliseconds; 0 or less means now. An owner
	// that first fills the queue with a backlog from the past starts it there: the wheel then holds
	// the backlog as cheaply as what is to come.
	Start int64

	// MaxSleep caps one sleep; 0 or less means one second. Go's timers follow the monotonic clock:
	// a sleeper does not see that the wall clock was set forward before it wakes. In a synctest
	// bubble, where nobody sets it, a long one saves a wake-up per virtual second.
	MaxSleep time.Duration

	// OnStep, if set, is called when the clock was set forward (positive) or back (negative)
	// against the monotonic clock by a quarter of a second or more. Pop calls it, on the owner's
	// goroutine.
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

	wheel  *wheel.Wheel[T]
	untidy bool // the wheel has more to split before it is worth sleeping
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
		cfg:   cfg,
		timer: sleeper,
		steps: newStepDetector(now),
		wheel: wheel.New[T](uint64(max(start, 0))),
	}
}

// Add puts v into the queue until due, in epoch milliseconds (see [CeilMilli]). A deadline in the
// past is due at once, and comes out before those that are later. A negative one, or one beyond
// [wheel.MaxTick], is refused with ErrDeadline; a full wheel, with [wheel.ErrFull].
func (q *DelayQueue[T]) Add(due int64, v T) (wheel.Handle, error) {
	if q.wheel == nil {
		return 0, ErrNotMade
	}
	if due < 0 || due > wheel.MaxTick {
		return 0, fmt.Errorf("%w: %d ms, want 0 to %d", ErrDeadline, due, int64(wheel.MaxTick))
	}
	return q.wheel.Add(uint64(due), v)
}

// Cancel takes a timer out. It reports false when h is stale: when the timer has come out, was
// cancelled, or has got another handle by Move.
func (q *DelayQueue[T]) Cancel(h wheel.Handle) bool {
	return q.wheel != nil && q.wheel.Cancel(h)
}

// Get returns the value and the deadline of a pending timer, or false when h is stale.
func (q *DelayQueue[T]) Get(h wheel.Handle) (t wheel.Expired[T], ok bool) {
	if q.wheel == nil {
		return t, false
	}
	return q.wheel.Get(h)
}

// Move gives a pending timer another deadline and returns the handle to use from then on. Among
// timers of its new deadline it has no particular place. It reports false, and changes nothing,
// when h is stale or due is out of range.
func (q *DelayQueue[T]) Move(h wheel.Handle, due int64) (wheel.Handle, bool) {
	if q.wheel == nil || due < 0 {
		return 0, false
	}
	return q.wheel.Move(h, uint64(due))
}

// Len returns the number of timers pending.
func (q *DelayQueue[T]) Len() int {
	if q.wheel == nil {
		return 0
	}
	return q.wheel.Len()
}

// Next returns the earliest deadline pending, in epoch milliseconds, or one before it when timers
// were cancelled or moved; never a later one. It reports false when the queue is empty.
func (q *DelayQueue[T]) Next() (due int64, ok bool) {
	if q.wheel == nil {
		return 0, false
	}
	when, ok := q.wheel.Next()
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

// Pop takes out what is due, appends it to buf's spare capacity (when it has none, Pop makes room
// for 256), and reports whether more may be due: call it until it reports false. When, in each, is
// the deadline that was asked for, even if that had passed already. Pop does not block, and one
// call's work is bounded by the room in buf, plus some tens of microseconds.
func (q *DelayQueue[T]) Pop(buf []wheel.Expired[T]) (due []wheel.Expired[T], more bool) {
	if q.wheel == nil {
		return buf, false
	}
	now := q.readClock()
	due, more = q.wheel.Advance(now, buf)
	if !more {
		q.untidy = q.wheel.Maintain(now, maintainChunks)
	}
	return due, more
}

// PopThrough is Pop of what is due and had to be by through, in epoch milliseconds. It completes the
// last tick of a Pop that had no room for all of it: those of one tick come in the order of adding.
func (q *DelayQueue[T]) PopThrough(through int64, buf []wheel.Expired[T]) (due []wheel.Expired[T], more bool) {
	if q.wheel == nil || through < 0 {
		return buf, false
	}
	return q.wheel.Advance(min(uint64(through), q.readClock()), buf)
}

// Drain yields every pending timer, in no order, and takes it out. Those not reached when the loop
// is left stay pending.
func (q *DelayQueue[T]) Drain() iter.Seq[wheel.Expired[T]] {
	if q.wheel == nil {
		return func(func(wheel.Expired[T]) bool) {}
	}
	return q.wheel.Drain()
}

// readClock returns the time in ms, rounded down, and reports steps.
func (q *DelayQueue[T]) readClock() uint64 {
	wall := q.cfg.Now()
	if step := q.steps.observe(wall); step != 0 && q.cfg.OnStep != nil {
		q.cfg.OnStep(step)
	}
	return uint64(max(wall.UnixMilli(), 0))
}
