package wheel

// Cancel removes a pending timer and returns its value. It reports false, and
// changes nothing, for a handle that is stale or zero.
func (w *Wheel[T]) Cancel(h Handle) (v T, ok bool) {
	e := w.slab.find(h)
	if e == nil {
		return v, false
	}
	v = e.value
	isBehind := e.when() < w.cursor
	e.retire() // its hint stays where it is until met or swept
	w.live--
	if isBehind {
		w.behind.dead++
		w.tidyBehind()
		return v, true
	}
	w.dead++
	if w.dead > int(uint(w.live)/2)+sweepSlack {
		w.sweepChunk()
	}
	return v, true
}

// Get returns the value and the deadline of a pending timer, or false for a
// handle that is stale or zero.
func (w *Wheel[T]) Get(h Handle) (t Expired[T], ok bool) {
	e := w.slab.find(h)
	if e == nil {
		return t, false
	}
	return Expired[T]{When: e.when(), Value: e.value}, true
}
