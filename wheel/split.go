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
