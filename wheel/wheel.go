package wheel

import (
	"iter"
	"math/bits"
)

// MaxTick is the last tick a wheel knows: 2^48-1, in milliseconds 8,925 years.
const MaxTick = 1<<(slotBits*levelCount) - 1

// A Wheel holds timers: values of type T with a deadline each, in ticks. What a
// tick is, and where ticks are counted from, is the caller's choice.
//
// It has no clock, no goroutine and no lock; it must not be used by two
// goroutines at once. The zero Wheel is empty, at tick 0, ready to use. A Wheel
// must not be copied after first use.
//
// Memory is taken in pages: the first timer costs some 130 KB, and with a large
// T 4,096 times its size, 4 MB for one of a kilobyte. A value is copied when it
// is added and up to twice when it fires: let T be a pointer if it is large.
type Wheel[T any] struct {
	_      noCopy
	cursor uint64
	live   int
	dead   int               // cancelled timers whose hint is still in a slot
	levels uint8             // bit l: path[l] is not empty
	path   [levelCount]*node // the node of each level that the cursor is in
	run    run               // timers taken out of the levels, sorted
	behind behind            // timers with a deadline before the cursor
	nodes  nodePool
	chunks chunkPool
	slab   slab[T]
	sweep  sweep

	fetched [chunkHints]T // what fetch reads into; zero between the calls
}

// noCopy makes go vet find copies of what contains it: it looks for a Lock method.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Expired is a timer that has left the wheel.
type Expired[T any] struct {
	// When is the deadline as it was asked for in Add or Move, also if that
	// had passed already.
	When  uint64
	Value T
}

// New returns an empty wheel at tick cursor, which ought to be near the
// earliest deadline that will be added: those before the cursor cost
// O(log n), not O(1). A cursor beyond [MaxTick] is taken as MaxTick.
func New[T any](cursor uint64) *Wheel[T] {
	return &Wheel[T]{cursor: min(cursor, MaxTick)}
}

// Len returns the number of pending timers.
func (w *Wheel[T]) Len() int { return w.live }

// Add makes v fire at tick when: the first [Wheel.Advance] to that tick or a later
// one returns it. A deadline that has passed is no error; it fires at the
// next Advance. The error wraps [ErrTooFar] or [ErrFull], and then nothing
// was added.
func (w *Wheel[T]) Add(when uint64, v T) (Handle, error) {
	if when > MaxTick {
		return 0, tooFar(when)
	}
	id := w.slab.take()
	if id == 0 {
		return w.addSlow(when, v)
	}
	p, i := w.slab.at(id)
	if p.state[i] == wornOut {
		w.slab.rest(id, &w.chunks)
		return w.addSlow(when, v)
	}
	w.live++
	s := p.state[i] | live
	p.state[i] = s
	p.value[i] = v
	p.setWhen(i, when)
	h := newHandle(id, p.epoch(), s)
	if when < w.cursor {
		p.state[i] |= aside
		w.behind.push(when, id)
	} else if !w.slot(when).add(when, id) { // place, without the call
		w.placeSlow(when, id)
	}
	return h, nil
}

// addSlow is Add when no usable id is at hand. It is a function of its own so
// that the usual path of Add spills no registers.
func (w *Wheel[T]) addSlow(when uint64, v T) (Handle, error) {
	if !w.slab.prepare(&w.chunks) {
		return 0, full(w.live)
	}
	return w.Add(when, v)
}

// Cancel removes a pending timer. It reports false, and changes nothing, for a
// handle that is stale or zero. Call [Wheel.Get] first if the value is needed.
func (w *Wheel[T]) Cancel(h Handle) bool {
	p, i := w.slab.find(h)
	if p == nil {
		return false
	}
	wasAside := p.state[i]&aside != 0
	p.retire(i) // its hint stays where it is until met or swept
	w.live--
	if wasAside && p.when(i) < w.cursor {
		w.behind.dead++
		w.tidyBehind()
		return true
	}
	w.dead++
	if w.dead > w.live>>1+sweepSlack {
		w.sweepChunk()
	}
	return true
}

// Get returns the value and the deadline of a pending timer, or false for a
// handle that is stale or zero.
func (w *Wheel[T]) Get(h Handle) (t Expired[T], ok bool) {
	p, i := w.slab.find(h)
	if p == nil {
		return t, false
	}
	return Expired[T]{When: p.when(i), Value: p.value[i]}, true
}

// Move gives a pending timer another deadline and returns the handle to use
// from now on: the same one if the deadline is not nearer and had not passed,
// else a new one, and h is stale. Postponing is the cheap direction: nothing
// but the deadline is written. Among timers of its new tick a moved one has no
// particular place.
//
// It reports false, and changes nothing, for a handle that is stale
// or zero, for a deadline beyond [MaxTick], and when a new handle is needed and
// the wheel is full.
func (w *Wheel[T]) Move(h Handle, when uint64) (Handle, bool) {
	p, i := w.slab.find(h)
	if p == nil || when > MaxTick {
		return 0, false
	}
	old := p.when(i)
	if when == old {
		return h, true
	}
	if when > old && old >= w.cursor {
		p.setWhen(i, when)
		p.state[i] |= aside
		return h, true
	}
	moved, err := w.Add(when, p.value[i])
	if err != nil {
		return 0, false
	}
	w.Cancel(h)
	return moved, true
}

// Next returns the tick to call [Wheel.Advance] at: no pending timer has a deadline
// before it. It may be too early, after a Cancel or a Move, and then the Advance
// returns nothing; it is never too late. It reports false when nothing is
// pending.
func (w *Wheel[T]) Next() (when uint64, ok bool) {
	if w.live == 0 {
		return 0, false
	}
	return w.lowest()
}

// lowest returns a lower bound of the deadlines of all timers, the cancelled ones
// that are still to be cleared away included.
func (w *Wheel[T]) lowest() (when uint64, ok bool) {
	if w.behind.len() > 0 {
		return w.behind.first().when, true
	}
	return w.ahead()
}

// ahead returns a lower bound of the deadlines from the cursor on.
func (w *Wheel[T]) ahead() (when uint64, ok bool) {
	when, ok = w.earliest()
	if w.run.len() > 0 && (!ok || w.run.first().when < when) {
		return w.run.first().when, true
	}
	return when, ok
}

// earliest returns a lower bound of the deadlines in the levels, exact unless
// timers were cancelled or postponed.
func (w *Wheel[T]) earliest() (when uint64, ok bool) {
	if w.levels == 0 {
		return 0, false
	}
	return w.path[bits.TrailingZeros8(w.levels)].earliest(), true
}

// Drain returns an iterator over the pending timers, in no particular order,
// that takes each out of the wheel as it yields it. Those not reached when the
// loop is left stay pending. What is added in the loop may be yielded too, but
// the loop ends even if it adds a timer for each one. The wheel keeps its cursor
// and can be used again; all handles of drained timers are stale. To drain in
// order, advance to [MaxTick].
//
// It takes time in proportion to the most timers the wheel has held since a Drain
// last emptied it.
func (w *Wheel[T]) Drain() iter.Seq[Expired[T]] {
	return func(yield func(Expired[T]) bool) {
		for id := range w.slab.next { // of which place 0 of each page names no timer
			h := w.slab.handle(uint32(id))
			if t, ok := w.Get(h); ok {
				w.Cancel(h)
				if !yield(t) {
					return
				}
			}
		}
		if w.live == 0 {
			w.reset()
		}
	}
}

// reset clears away what is left of the timers of an empty wheel. The slab
// stays, as its generations are what makes old handles stale.
func (w *Wheel[T]) reset() {
	w.dead = 0
	w.levels = 0
	w.path = [levelCount]*node{}
	w.run = run{}
	w.behind = behind{}
	w.nodes = nodePool{}
	w.chunks = chunkPool{}
	w.sweep = sweep{}
	w.slab.reset()
}
