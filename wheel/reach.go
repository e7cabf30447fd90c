package wheel

// reach moves the cursor to t, which is neither before it nor after any
// deadline in the levels. The slots that t lies in must be split first; each timer
// handled is taken off *work, and when that is used up, reach reports false, the
// cursor stays, and a later call goes on.
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
