package wheel

// behind is a binary heap of the timers whose deadline was before the cursor when
// they were added: past due, or not even due after the clock went back. All
// of them come before all others.
type behind struct {
	heap []late
	seq  uint64 // order of adding
	dead int    // cancelled ones among them
}

type late struct {
	when uint64
	seq  uint64
	id   uint32
}

func (l late) before(m late) bool {
	return l.when < m.when || l.when == m.when && l.seq < m.seq
}

func (b *behind) len() int { return len(b.heap) }

// first returns the earliest one; there must be one.
func (b *behind) first() late { return b.heap[0] }

func (b *behind) push(when uint64, id uint32) {
	b.heap = append(b.heap, late{when: when, seq: b.seq, id: id})
	b.seq++
	i := len(b.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !b.heap[i].before(b.heap[parent]) {
			return
		}
		b.heap[i], b.heap[parent] = b.heap[parent], b.heap[i]
		i = parent
	}
}

func (b *behind) pop() {
	last := len(b.heap) - 1
	b.heap[0] = b.heap[last]
	b.heap = b.heap[:last]
	b.down(0)
}

func (b *behind) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(b.heap) {
			return
		}
		if right := child + 1; right < len(b.heap) && b.heap[right].before(b.heap[child]) {
			child = right
		}
		if !b.heap[child].before(b.heap[i]) {
			return
		}
		b.heap[i], b.heap[child] = b.heap[child], b.heap[i]
		i = child
	}
}

// tidyBehind drops the cancelled ones when there are too many of them.
func (w *Wheel[T]) tidyBehind() {
	b := &w.behind
	if b.dead <= len(b.heap)/2+sweepSlack {
		return
	}
	kept := b.heap[:0]
	for _, t := range b.heap {
		if w.slab.isLive(t.id) {
			kept = append(kept, t)
		} else {
			w.slab.free.put(hint(t.id), &w.chunks)
		}
	}
	b.heap, b.dead = kept, 0
	for i := len(kept)/2 - 1; i >= 0; i-- {
		b.down(i)
	}
}
