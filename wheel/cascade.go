package wheel

import "math/bits"

// split hands the list of s, a slot of level l > 0, down to a child, one level
// finer, as far as *work goes, and reports whether the list is done.
func (w *Wheel[T]) split(s *slot, l int, work *int) bool {
	if s.head == 0 {
		return true
	}
	if *work <= 0 {
		return false
	}
	w.sweep.leave(s)
	if s.child == nil {
		s.child = w.nodes.get()
		if digit(s.min, l-1) == digit(s.max, l-1) {
			i := digit(s.min, l-1)
			s.child.slots[i] = slot{head: s.head, tail: s.tail, min: s.min, max: s.max}
			s.child.occupied = 1 << i
			s.head, s.tail = 0, nil
			return true
		}
	}
	for s.head != 0 {
		if *work <= 0 {
			return false
		}
		*work -= w.chunks.at(s.head).len()
		w.handDown(s, l)
	}
	s.tail = nil
	if s.child.occupied == 0 {
		w.nodes.put(s.child)
		s.child = nil
	}
	return true
}

// handDown moves the first chunk of s into its child.
func (w *Wheel[T]) handDown(s *slot, l int) {
	first := s.head
	c := w.chunks.at(first)
	hints := c.hint[c.from:c.n]
	if wide(l) {
		w.handDownWide(s, l, hints)
	} else {
		for _, h := range hints {
			when, id := h.when(s.min), h.id()
			if !s.child.slots[digit(when, l-1)].add(when, id) {
				w.placeBelow(s.child, l-1, when, id)
			}
		}
	}
	s.head = c.next
	w.chunks.release(first)
}

// handDownWide does it for slots whose hints do not tell the deadline: it looks
// each timer up, gives back the ids of cancelled ones, and places those that
// were postponed to beyond the slot elsewhere.
func (w *Wheel[T]) handDownWide(s *slot, l int, hints []hint) {
	for alive := w.clear(hints); alive != 0; alive &= alive - 1 {
		id := hints[bits.TrailingZeros64(alive)].id()
		when := w.slab.when(id)
		if level(when^s.min) < l {
			w.placeBelow(s.child, l-1, when, id)
		} else {
			w.place(when, id)
		}
	}
}

// wide reports whether slots of level l span more ticks than a hint can tell.
func wide(l int) bool { return slotBits*l > 32 }

// A run holds what comes next, in order: the timers of slots that were opened
// when they had a single chunk. Sorting those few costs less than a way down
// through the levels. They are older than the timers of their tick that
// are in the levels, and so fire before them.
//
// Each level contributes one chunk at most, because the cursor enters its next
// slot only when the timers of the one before have fired.
type run struct {
	timers []upcoming // the first one comes last
}

type upcoming struct {
	when uint64
	id   uint32
}

func (r *run) len() int { return len(r.timers) }

// first returns the earliest one; there must be one.
func (r *run) first() upcoming { return r.timers[len(r.timers)-1] }

func (r *run) pop() { r.timers = r.timers[:len(r.timers)-1] }

// insert puts a timer behind all that are not later.
func (r *run) insert(when uint64, id uint32) {
	i := len(r.timers)
	r.timers = append(r.timers, upcoming{when, id})
	for ; i > 0 && r.timers[i-1].when <= when; i-- {
		r.timers[i-1], r.timers[i] = r.timers[i], r.timers[i-1]
	}
}

// gather moves the single chunk of s, a slot of level l that the cursor has just
// entered, into the run.
func (w *Wheel[T]) gather(s *slot, l int) {
	if s.head == 0 {
		return
	}
	first := s.head // the sweep does not stand here: where it does, two chunks are left
	s.head, s.tail = 0, nil
	c := w.chunks.at(first)
	hints := c.hint[c.from:c.n]
	w.fetch(hints)
	alive := w.clear(hints)
	if wide(l) {
		w.arrangeWide(hints, alive, l)
	} else {
		w.arrange(hints, alive, slotBits*(l-1))
	}
	w.chunks.release(first)
}

// fetch reads the values of timers that will soon fire, all at once, so that
// their cache misses overlap: Advance would wait for one after the other.
func (w *Wheel[T]) fetch(hints []hint) {
	for k, h := range hints {
		p, i := w.slab.at(h.id())
		w.fetched[k] = p.value[i]
	}
	clear(w.fetched[:len(hints)])
}

// arrange inserts those of the hints that are alive into the run. They are taken by
// their digit at shift, the highest in which they differ, and the latest first: that
// leaves insert next to nothing to do. Those of one digit form a list in order of
// adding. Only the hints are needed for this, so the sorting goes on while the
// states and values that clear and fetch read are still on their way. A postponed
// one goes in with its old tick, and meet places it again.
func (w *Wheel[T]) arrange(hints []hint, alive uint64, shift int) {
	var (
		digits  uint64            // those that have a list
		oldest  [slotCount]uint8  // by digit, 1 + index of its first hint
		younger [chunkHints]uint8 // by hint, 1 + index of the next of its list, or 0
	)
	for i := len(hints) - 1; i >= 0; i-- {
		if alive>>i&1 != 0 {
			d := hints[i].digit(shift)
			younger[i] = oldest[d]
			oldest[d] = uint8(i + 1)
			digits |= 1 << d
		}
	}
	for digits != 0 {
		d := bits.Len64(digits) - 1
		digits &^= 1 << d
		for i := oldest[d]; i != 0; i = younger[i-1] {
			w.run.insert(hints[i-1].when(w.cursor), hints[i-1].id())
		}
	}
}

// arrangeWide does it for slots whose hints do not tell the deadline: it asks the
// slab, which knows of Move too.
func (w *Wheel[T]) arrangeWide(hints []hint, alive uint64, l int) {
	for ; alive != 0; alive &= alive - 1 {
		id := hints[bits.TrailingZeros64(alive)].id()
		if when := w.slab.when(id); level(when^w.cursor) < l {
			w.run.insert(when, id)
		} else { // postponed to beyond the slot
			w.place(when, id)
		}
	}
}
