package wheel

import "math/bits"

const (
	// advanceWork bounds how many timers one Advance cascades or clears away.
	advanceWork = 32 * chunkHints
	// growBy is the room Advance makes in a slice that has none.
	growBy = 256
)

// Advance appends to out the timers that are due at tick now, those with a deadline
// of now or before, and takes them out of the wheel: by deadline, and those
// of one tick in the order of adding.
//
// It fills the spare capacity of out and no more (if there is none, it makes
// room for 256), and does a bounded amount of cascading. When more is true
// something may be left, even if nothing was returned: call again.
//
// A now before that of an earlier call is no error: nothing fires before its
// deadline. A now beyond [MaxTick] is taken as MaxTick.
func (w *Wheel[T]) Advance(now uint64, out []Expired[T]) (due []Expired[T], more bool) {
	now = min(now, MaxTick)
	if len(out) == cap(out) {
		if t, ok := w.lowest(); ok && t <= now {
			out = append(make([]Expired[T], 0, len(out)+growBy), out...)
		}
	}
	work := advanceWork
	if out, more = w.fireBehind(now, out, &work); more {
		return out, more
	}
	for {
		t, ok := w.earliest()
		if w.run.len() > 0 && (!ok || w.run.first().when <= t) {
			if w.run.first().when > now {
				break
			}
			if len(out) == cap(out) {
				return out, true
			}
			out = w.fireRun(out)
			continue
		}
		if !ok || t > now {
			break
		}
		if len(out) == cap(out) || !w.reach(t, &work) {
			return out, true
		}
		if out, more = w.fire(out, &work); more {
			return out, true
		}
	}
	if now > w.cursor {
		w.reach(now, &work)
	}
	return out, false
}

// fire appends the timers of the cursor's tick; more tells that some are left.
func (w *Wheel[T]) fire(out []Expired[T], work *int) (due []Expired[T], more bool) {
	i := digit(w.cursor, 0)
	n := w.path[0]
	if n == nil || n.occupied&(1<<i) == 0 {
		return out, false
	}
	s := &n.slots[i]
	w.sweep.leave(s)
	for s.head != 0 {
		if *work <= 0 {
			return out, true
		}
		c := w.chunks.at(s.head)
		before := c.len() + len(out)
		for c.from < c.n {
			if len(out) == cap(out) {
				return out, true
			}
			out = w.meet(c.hint[c.from].id(), w.cursor, out)
			c.from++
		}
		*work -= before - len(out) // those that were cancelled or postponed
		next := c.next
		w.chunks.release(s.head)
		s.head = next
	}
	s.tail = nil
	w.vacate(0, i)
	return out, false
}

// fireRun meets the first timer of the run.
func (w *Wheel[T]) fireRun(out []Expired[T]) []Expired[T] {
	first := w.run.first()
	w.run.pop()
	return w.meet(first.id, first.when, out)
}

// meet appends the timer of a hint for tick when and takes it out of the wheel,
// unless it was cancelled or is postponed.
func (w *Wheel[T]) meet(id uint32, when uint64, out []Expired[T]) []Expired[T] {
	p, i := w.slab.at(id)
	switch s := p.state[i]; {
	case s&live == 0:
		w.dead--
	case s&aside != 0 && p.when(i) > when:
		w.place(p.when(i), id)
		return out
	default:
		w.live--
		out = append(out, Expired[T]{When: when, Value: p.value[i]})
		p.retire(i)
	}
	w.slab.free.put(hint(id), &w.chunks)
	return out
}

// fireBehind appends those timers behind the cursor that are due at now.
func (w *Wheel[T]) fireBehind(now uint64, out []Expired[T], work *int) (due []Expired[T], more bool) {
	for w.behind.len() > 0 && w.behind.first().when <= now {
		if len(out) == cap(out) || *work <= 0 {
			return out, true
		}
		first := w.behind.first()
		w.behind.pop()
		if !w.slab.isLive(first.id) {
			w.behind.dead--
			*work--
			w.slab.free.put(hint(first.id), &w.chunks)
			continue
		}
		out = w.meet(first.id, first.when, out)
	}
	return out, false
}

// reach moves the cursor to t, which is neither before it nor after any
// deadline in the levels. The slots that t lies in must be split first. Each timer
// handled is taken off *work. When that is used up, reach reports false and the
// cursor stays; a later call goes on.
func (w *Wheel[T]) reach(t uint64, work *int) bool {
	top := level(t ^ w.cursor)
	n := w.path[top]
	for l := top; l > 0 && n != nil; l-- {
		s := &n.slots[digit(t, l)]
		if s.head != 0 && *work <= 0 {
			return false
		}
		if w.chunks.short(s) {
			if s.head != 0 {
				*work -= s.tail.len() // gather will take them
			}
			break
		}
		if !w.split(s, l, work) {
			return false
		}
		n = s.child
	}
	w.enter(t, top)
	return true
}

// enter moves the cursor to t, which differs from it on level top and below.
// As no deadline is before t, the nodes below top are empty; those of the
// slots entered take their place.
func (w *Wheel[T]) enter(t uint64, top int) {
	w.cursor = t
	for l := top; l > 0; l-- {
		i := digit(t, l)
		n := w.path[l]
		if n == nil || n.occupied&(1<<i) == 0 {
			return
		}
		w.vacate(l, i)
		s := &n.slots[i]
		if s.child == nil {
			w.gather(s, l)
			return
		}
		w.nodes.put(w.path[l-1])
		w.path[l-1] = s.child
		w.levels |= 1 << (l - 1)
		s.child = nil
	}
}

// vacate notes that slot i of the cursor's node on level l is empty.
func (w *Wheel[T]) vacate(l, i int) {
	n := w.path[l]
	n.occupied &^= 1 << i
	if n.occupied == 0 {
		w.levels &^= 1 << l
	}
}

// Maintain does work ahead that Advance would have to do later: it opens the
// slots that have begun by tick now, and splits, on each level, the slot that
// comes next. It handles at most the given number of chunks, of up to 63 timers
// each, and reports whether work is left. It fires nothing and is never
// necessary; calling it when idle makes large crowds of timers fire in time.
func (w *Wheel[T]) Maintain(now uint64, chunks int) (more bool) {
	work := max(0, min(chunks, 1<<20)) * chunkHints
	t := min(now, MaxTick)
	if first, ok := w.ahead(); ok {
		t = min(t, first)
	}
	if t > w.cursor && !w.reach(t, &work) {
		return true
	}
	for above := w.levels &^ 1; above != 0; above &= above - 1 {
		if !w.splitFirst(bits.TrailingZeros8(above), &work) {
			return true
		}
	}
	return false
}

// splitFirst splits the first slot of the cursor's node on level l, then the
// first slot of that, and so on; it reports whether this is done.
func (w *Wheel[T]) splitFirst(l int, work *int) bool {
	for n := w.path[l]; l > 0 && n != nil; l-- {
		s := &n.slots[n.first()]
		if w.chunks.short(s) {
			return true
		}
		if !w.split(s, l, work) {
			return false
		}
		n = s.child
	}
	return true
}
