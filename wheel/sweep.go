package wheel

import "math/bits"

// sweepSlack is how many cancelled timers are left alone in any case.
const sweepSlack = 512

// A sweep goes round all slots, chunk by chunk, and clears cancelled timers
// away. It runs one chunk per Cancel while there are too many of them.
type sweep struct {
	node   int    // index into nodePool.all
	slot   int    // where to look for the next slot in it
	at     *slot  // the slot being swept, or nil
	before uint32 // the chunk before its last chunk swept, or 0
	last   uint32 // its last chunk swept, or 0
	next   uint32 // its next chunk to sweep
}

// leave makes the sweep forget s, whose list is about to change.
func (sw *sweep) leave(s *slot) {
	if sw.at == s {
		sw.at = nil
	}
}

// sweepChunk closes the gap left by the chunk swept last, and clears one more.
// The gap waits until the next Cancel because its size depends on the cache
// misses of a whole chunk: by then they are over, here they would be waited for.
func (w *Wheel[T]) sweepChunk() {
	sw := &w.sweep
	if sw.at == nil && !w.sweepSeek() {
		return
	}
	if sw.last != 0 {
		w.closeGap()
	}
	c := w.chunks.at(sw.next)
	w.squeeze(c)
	sw.before, sw.last, sw.next = sw.last, sw.next, c.next
	if sw.next == 0 { // a slot keeps its last chunk until its time comes
		sw.at = nil
	}
}

// closeGap moves hints of the chunk swept last up into the one before it, as far
// as there is room, and takes it out of the list if it is empty then.
func (w *Wheel[T]) closeGap() {
	sw := &w.sweep
	c := w.chunks.at(sw.last)
	if sw.before != 0 {
		to := w.chunks.at(sw.before)
		k := copy(to.hint[to.n:], c.hint[:c.n])
		to.n += uint16(k)
		c.n = uint16(copy(c.hint[:], c.hint[k:c.n]))
	}
	if c.n > 0 {
		return
	}
	if sw.before == 0 {
		sw.at.head = sw.next
	} else {
		w.chunks.at(sw.before).next = sw.next
	}
	w.chunks.release(sw.last)
	sw.last = sw.before
}

// squeeze drops the cancelled hints of c and frees their ids. It has no branch
// that depends on which these are: the look-ups do not wait for each other, and
// nothing after them for their cache misses.
func (w *Wheel[T]) squeeze(c *chunk) {
	hints := c.hint[c.from:c.n]
	free := w.slab.free.room(&w.chunks)
	pages := w.slab.pages
	kept := 0
	for i, h := range hints {
		s := pages[h.id()>>pageBits].state[h.id()%pageSize]
		c.hint[kept] = h
		free[i-kept] = h
		kept += int(s & live)
	}
	c.from, c.n = 0, uint16(kept)
	w.dead -= len(hints) - kept
	w.slab.free.n += len(hints) - kept
}

// clear frees the ids of cancelled timers among hints, and returns the
// others as bits. Without branches, the look-ups do not wait for each
// other: the cache misses of a chunk overlap.
func (w *Wheel[T]) clear(hints []hint) (alive uint64) {
	for _, h := range hints {
		p, i := w.slab.at(h.id())
		alive = alive>>1 | uint64(p.state[i])<<63 // live is the lowest bit
	}
	alive >>= 64 - len(hints)
	dead := alive ^ (1<<len(hints) - 1)
	w.dead -= bits.OnesCount64(dead)
	for ; dead != 0; dead &= dead - 1 {
		w.slab.free.put(hints[bits.TrailingZeros64(dead)], &w.chunks)
	}
	return alive
}

// sweepSeek finds the next slot that has a list, or reports false when there is
// none: the second time round covers the slots before the one it began at.
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
				sw.at, sw.before, sw.last, sw.next = s, 0, 0, s.head
				return true
			}
		}
		sw.node++
		sw.slot = 0
	}
	return false
}
