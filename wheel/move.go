package wheel

// Move gives a pending timer another deadline and returns the handle to use
// from now on: the same one if the deadline is not nearer and had not passed,
// else a new one, and h is stale. Postponing is the cheap direction: nothing
// but the deadline is written. Among timers of its new tick a moved one has no
// particular place.
//
// It reports false, and changes nothing, for a handle that is stale
// or zero, for a deadline beyond [MaxTick], and when a new handle is needed and
// the wheel is full.
func (w *Wheel[T]) Move(h Handle, when uint64) (Handle, bool) {
	p, i := w.slab.find(h)
	if p == nil || when > MaxTick {
		return 0, false
	}
	old := p.when(i)
	if when == old {
		return h, true
	}
	if when > old && old >= w.cursor {
		p.setWhen(i, when)
		p.state[i] |= aside
		return h, true
	}
	moved, err := w.Add(when, p.value[i])
	if err != nil {
		return 0, false
	}
	w.Cancel(h)
	return moved, true
}
