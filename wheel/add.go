package wheel

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
		w.slab.wear(p)
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

// slot returns the slot for a tick that is not before the cursor, or nil when
// the cursor has no node on its level.
func (w *Wheel[T]) slot(when uint64) *slot {
	l := level(when ^ w.cursor)
	if n := w.path[l]; n != nil {
		return &n.slots[digit(when, l)]
	}
	return nil
}

// place puts a hint into the levels; when is not before the cursor. It stays
// small for the usual case, a list that has room, so that the processor can
// overlap the cache misses of one call with those of the next.
func (w *Wheel[T]) place(when uint64, id uint32) {
	if !w.slot(when).add(when, id) {
		w.placeSlow(when, id)
	}
}

func (w *Wheel[T]) placeSlow(when uint64, id uint32) {
	l := level(when ^ w.cursor)
	w.levels |= 1 << l
	if w.path[l] == nil {
		w.path[l] = w.nodes.get()
	}
	w.placeBelow(w.path[l], l, when, id)
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
			if !s.add(when, id) {
				w.chunks.extend(s, when)
				s.add(when, id)
			}
			return
		}
		n, l = s.child, l-1
	}
}
