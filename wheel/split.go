package wheel

// split hands the list of s, a slot of level l > 0, down to a child, one level
// finer. It takes *chunks chunks at most and reports whether the list is done.
func (w *Wheel[T]) split(s *slot, l int, chunks *int) bool {
	if s.head == 0 {
		return true
	}
	if *chunks <= 0 {
		return false
	}
	w.sweep.leave(s)
	if s.child == nil {
		s.child = w.nodes.get()
		if digit(s.min, l-1) == digit(s.max, l-1) {
			i := digit(s.min, l-1)
			s.child.slots[i] = slot{head: s.head, tail: s.tail, min: s.min, max: s.max}
			s.child.occupied = 1 << i
			s.head, s.tail = 0, 0
			return true
		}
	}
	for s.head != 0 {
		if *chunks <= 0 {
			return false
		}
		*chunks--
		w.handDown(s, l)
	}
	s.tail = 0
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
	for _, h := range c.hint[c.from:c.n] {
		if !wide(l) {
			w.placeBelow(s.child, l-1, h.when(s.min), h.id())
		} else if when, ok := w.settle(h.id()); ok {
			w.placeWide(s, l, when, h.id())
		}
	}
	s.head = c.next
	w.chunks.release(first)
}

// wide reports whether slots of level l span more ticks than a hint can tell.
func wide(l int) bool { return slotBits*l > 32 }

// settle looks a timer up whose hint has been met: it returns the deadline of
// a live one, and gives back the id of a cancelled one.
func (w *Wheel[T]) settle(id uint32) (when uint64, ok bool) {
	e := w.slab.at(id)
	if e.live() {
		return e.when(), true
	}
	w.dead--
	w.slab.release(id)
	return 0, false
}

// placeWide places a timer of s into its child, unless it was postponed to
// beyond the slot.
func (w *Wheel[T]) placeWide(s *slot, l int, when uint64, id uint32) {
	if level(when^s.min) < l {
		w.placeBelow(s.child, l-1, when, id)
	} else {
		w.place(when, id)
	}
}
