package wheel

import "math/bits"

// Maintain does work ahead that Advance would have to do later: it opens the
// slots that have begun by tick now, and splits, on each level, the slot that
// comes next. It handles at most the given number of chunks, of up to 63 timers
// each, and reports whether work is left. It fires nothing and is never
// necessary; calling it when idle makes large crowds of timers fire in time.
func (w *Wheel[T]) Maintain(now uint64, chunks int) (more bool) {
	work := max(0, min(chunks, 1<<20)) * chunkHints
	t := min(now, MaxTick)
	if first, ok := w.ahead(); ok {
		t = min(t, first)
	}
	if t > w.cursor && !w.reach(t, &work) {
		return true
	}
	for above := w.levels &^ 1; above != 0; above &= above - 1 {
		if !w.splitFirst(bits.TrailingZeros8(above), &work) {
			return true
		}
	}
	return false
}

// splitFirst splits the first slot of the cursor's node on level l, then the
// first slot of that, and so on; it reports whether this is done.
func (w *Wheel[T]) splitFirst(l int, work *int) bool {
	for n := w.path[l]; l > 0 && n != nil; l-- {
		s := &n.slots[n.first()]
		if w.chunks.short(s) {
			return true
		}
		if !w.split(s, l, work) {
			return false
		}
		n = s.child
	}
	return true
}
