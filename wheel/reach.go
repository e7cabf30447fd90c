package wheel

import "math/bits"

// reach moves the cursor to t, which is neither before it nor after any
// deadline in the levels. The slots that t lies in must be split first; that
// takes *chunks chunks at most, and when they do not suffice, reach reports
// false, the cursor stays, and a later call goes on. Timers of tick t that it
// comes across are appended to the spare capacity of out.
func (w *Wheel[T]) reach(t uint64, chunks *int, out []Expired[T]) (due []Expired[T], ok bool) {
	top := level(t ^ w.cursor)
	n := w.path[top]
	for l := top; l > 0 && n != nil; l-- {
		s := &n.slots[digit(t, l)]
		if w.chunks.short(s) {
			break
		}
		if !w.split(s, l, chunks) {
			return out, false
		}
		n = s.child
	}
	return w.enter(t, top, out), true
}

// enter moves the cursor to t, which differs from it on level top and below.
// As no deadline is before t, the nodes below top are empty; those of the
// slots entered take their place.
func (w *Wheel[T]) enter(t uint64, top int, out []Expired[T]) []Expired[T] {
	w.cursor = t
	for l := top; l > 0; l-- {
		i := digit(t, l)
		n := w.path[l]
		if n == nil || n.occupied&(1<<i) == 0 {
			return out
		}
		w.vacate(l, i)
		s := &n.slots[i]
		if s.child == nil {
			return w.scatter(s, out)
		}
		w.nodes.put(w.path[l-1])
		w.path[l-1] = s.child
		w.levels |= 1 << (l - 1)
		s.child = nil
	}
	return out
}

// vacate notes that slot i of the cursor's node on level l is empty.
func (w *Wheel[T]) vacate(l, i int) {
	n := w.path[l]
	n.occupied &^= 1 << i
	if n.occupied == 0 {
		w.levels &^= 1 << l
	}
}

// scatter places the single chunk of a slot anew, each timer as near to the
// cursor as it is: sparse timers skip levels, and those of the cursor's tick
// go to out at once.
func (w *Wheel[T]) scatter(s *slot, out []Expired[T]) []Expired[T] {
	if s.head == 0 {
		return out
	}
	w.sweep.leave(s)
	first := s.head
	s.head, s.tail = 0, nil
	c := w.chunks.at(first)
	hints := c.hint[c.from:c.n]
	for alive := w.clear(hints); alive != 0; alive &= alive - 1 {
		id := hints[bits.TrailingZeros64(alive)].id()
		when := w.slab.at(id).when()
		if when == w.cursor && len(out) < cap(out) {
			out = w.expire(id, out)
		} else {
			w.place(when, id)
		}
	}
	w.chunks.release(first)
	return out
}
