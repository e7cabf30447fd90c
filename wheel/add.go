package wheel

import "fmt"

// Add makes v fire at tick when: the first [Wheel.Advance] to that tick or a later
// one returns it. A deadline that has passed is no error; it fires at the
// next Advance. The error wraps [ErrTooFar] or [ErrFull], and then nothing
// was added.
func (w *Wheel[T]) Add(when uint64, v T) (Handle, error) {
	if when > MaxTick {
		return 0, fmt.Errorf("wheel: add: deadline %d: %w", when, ErrTooFar)
	}
	id, h := w.slab.alloc(when, v)
	if id == 0 {
		return 0, fmt.Errorf("wheel: add: %d pending: %w", w.live, ErrFull)
	}
	w.live++
	if when < w.cursor {
		w.behind.push(when, id)
	} else {
		w.place(when, id)
	}
	return h, nil
}

// place puts a hint into the levels; when is not before the cursor.
func (w *Wheel[T]) place(when uint64, id uint32) {
	l := level(when ^ w.cursor)
	w.levels |= 1 << l
	n := w.path[l]
	if n == nil {
		n = w.nodes.get()
		w.path[l] = n
	}
	w.placeBelow(n, l, when, id)
}

// placeBelow puts a hint into n, a node of level l, or into a split slot's
// child. A slot that is still being split takes it at the end of its list, so
// that it stays behind the older hints.
func (w *Wheel[T]) placeBelow(n *node, l int, when uint64, id uint32) {
	for {
		i := digit(when, l)
		n.occupied |= 1 << i
		s := &n.slots[i]
		if s.child == nil || s.head != 0 {
			w.append(s, when, id)
			return
		}
		n, l = s.child, l-1
	}
}

func (w *Wheel[T]) append(s *slot, when uint64, id uint32) {
	if s.head == 0 {
		s.head = w.chunks.alloc()
		s.tail = s.head
		s.min, s.max = when, when
	}
	c := w.chunks.at(s.tail)
	if c.n == chunkHints {
		c.next = w.chunks.alloc()
		s.tail = c.next
		c = w.chunks.at(s.tail)
	}
	c.hint[c.n] = newHint(when, id)
	c.n++
	s.min = min(s.min, when)
	s.max = max(s.max, when)
}
