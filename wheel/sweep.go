package wheel

import "math/bits"

// sweepSlack is how many cancelled timers are left alone in any case.
const sweepSlack = 512

// A sweep goes round all slots, chunk by chunk, and clears cancelled timers
// away. It runs one chunk per Cancel while there are too many of them.
type sweep struct {
	node int    // index into nodePool.all
	slot int    // where to look for the next slot in it
	at   *slot  // the slot being swept, or nil
	prev uint32 // its last chunk swept, or 0
	next uint32 // its next chunk to sweep
}

// leave makes the sweep forget s, whose list is about to change.
func (sw *sweep) leave(s *slot) {
	if sw.at == s {
		sw.at = nil
	}
}

// sweepChunk clears one chunk and closes the gaps.
func (w *Wheel[T]) sweepChunk() {
	sw := &w.sweep
	if sw.at == nil && !w.sweepSeek() {
		return
	}
	s, this := sw.at, sw.next
	c := w.chunks.at(this)
	w.squeeze(c, sw.prev)
	sw.next = c.next
	switch {
	case c.n > 0 || s.head == this && s.tail == c: // a slot keeps its last chunk until its time comes
		sw.prev = this
	case sw.prev == 0:
		s.head = c.next
		w.chunks.release(this)
	default:
		before := w.chunks.at(sw.prev)
		before.next = c.next
		if s.tail == c {
			s.tail = before
		}
		w.chunks.release(this)
	}
	if sw.next == 0 {
		sw.at = nil
	}
}

// squeeze drops the cancelled hints of c and moves the others up, first into
// what room there is in the chunk before it.
func (w *Wheel[T]) squeeze(c *chunk, before uint32) {
	hints := c.hint[c.from:c.n]
	alive := w.clear(hints)
	to := c
	if before != 0 {
		to = w.chunks.at(before)
	}
	c.from, c.n = 0, 0
	for ; alive != 0; alive &= alive - 1 {
		if to.n == chunkHints {
			to = c
		}
		to.hint[to.n] = hints[bits.TrailingZeros64(alive)]
		to.n++
	}
}

// clear gives back the ids of cancelled timers among hints, and returns the
// others as bits. Without branches, the look-ups do not wait for each
// other: the cache misses of a chunk overlap.
func (w *Wheel[T]) clear(hints []hint) (alive uint64) {
	for _, h := range hints {
		alive = alive>>1 | w.slab.at(h.id()).meta<<63 // live is the lowest bit
	}
	alive >>= 64 - len(hints)
	dead := alive ^ (1<<len(hints) - 1)
	w.dead -= bits.OnesCount64(dead)
	for ; dead != 0; dead &= dead - 1 {
		w.slab.release(hints[bits.TrailingZeros64(dead)].id())
	}
	return alive
}

// sweepSeek finds the next slot that has a list, or reports false when a
// whole round finds none.
func (w *Wheel[T]) sweepSeek() bool {
	sw := &w.sweep
	for range 2 * len(w.nodes.all) {
		if sw.node >= len(w.nodes.all) {
			sw.node, sw.slot = 0, 0
		}
		n := w.nodes.all[sw.node]
		for rest := n.occupied &^ (1<<sw.slot - 1); rest != 0; rest &= rest - 1 {
			i := bits.TrailingZeros64(rest)
			if s := &n.slots[i]; s.head != 0 {
				sw.slot = i + 1
				sw.at, sw.prev, sw.next = s, 0, s.head
				return true
			}
		}
		sw.node++
		sw.slot = 0
	}
	return false
}
