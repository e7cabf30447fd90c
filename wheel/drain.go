package wheel

import "iter"

// Drain returns an iterator over the pending timers, in no particular order,
// that takes each out of the wheel as it yields it. Those not reached when the
// loop is left stay pending. What is added in the loop may be yielded too, but
// the loop ends even if it adds a timer for each one. The wheel keeps its cursor
// and can be used again; all handles of drained timers are stale. To drain in
// order, advance to [MaxTick].
//
// It takes time in proportion to the most timers the wheel has held since a Drain
// last emptied it.
func (w *Wheel[T]) Drain() iter.Seq[Expired[T]] {
	return func(yield func(Expired[T]) bool) {
		end, next := uint64(w.slab.opened)<<pageBits, w.slab.next
		for id := range end {
			if id >= next && id>>pageBits == (next-1)>>pageBits {
				continue // unused when the loop began: what its body adds comes there
			}
			h := w.slab.handle(uint32(id))
			if t, ok := w.Get(h); ok {
				w.Cancel(h)
				if !yield(t) {
					return
				}
			}
		}
		if w.live == 0 {
			w.reset()
		}
	}
}

// reset clears away what is left of the timers of an empty wheel. The slab
// stays, as its generations are what makes old handles stale.
func (w *Wheel[T]) reset() {
	w.dead = 0
	w.levels = 0
	w.path = [levelCount]*node{}
	w.run = run{}
	w.behind = behind{}
	w.nodes = nodePool{}
	w.chunks = chunkPool{}
	w.sweep = sweep{}
	w.slab.reset()
}
