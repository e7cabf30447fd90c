package wheel

// Cancel removes a pending timer and returns its value. It reports false, and
// changes nothing, for a handle that is stale, foreign or zero.
func (w *Wheel[T]) Cancel(h Handle) (v T, ok bool) {
	e := w.slab.find(h)
	if e == nil {
		return v, false
	}
	v = e.value
	w.remove(e)
	return v, true
}

// Get returns the value and the deadline of a pending timer, or false for a
// handle that is stale, foreign or zero.
func (w *Wheel[T]) Get(h Handle) (t Expired[T], ok bool) {
	e := w.slab.find(h)
	if e == nil {
		return t, false
	}
	return Expired[T]{When: e.when(), Value: e.value}, true
}

// remove retires a live entry. Its hint stays where it is until met or swept.
func (w *Wheel[T]) remove(e *entry[T]) {
	isBehind := e.when() < w.cursor
	e.retire()
	w.live--
	if isBehind {
		w.behind.dead++
		if w.behind.wasteful() {
			w.compactBehind()
		}
		return
	}
	w.dead++
	if w.dead > w.live/2+sweepSlack {
		w.sweepChunk()
	}
}
