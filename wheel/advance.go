package wheel

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
		w.slab.retire(p, i)
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
