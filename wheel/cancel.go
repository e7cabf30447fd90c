package wheel

// Cancel removes a pending timer. It reports false, and changes nothing, for a
// handle that is stale or zero. Call [Wheel.Get] first if the value is needed.
func (w *Wheel[T]) Cancel(h Handle) bool {
	p, i := w.slab.find(h)
	if p == nil {
		return false
	}
	wasAside := p.state[i]&aside != 0
	w.slab.retire(p, i) // its hint stays where it is until met or swept
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
