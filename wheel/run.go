package wheel

// A run holds what comes next, in order: the timers of slots that were opened
// when they had a single chunk. Sorting those few costs less than a way down
// through the levels. They are older than the timers of their tick that
// are in the levels, and so fire before them.
//
// Each level contributes one chunk at most, because the cursor enters its next
// slot only when the timers of the one before have fired.
type run struct {
	timers []next // the first one comes last
}

type next struct {
	when uint64
	id   uint32
}

func (r *run) len() int { return len(r.timers) }

// first returns the earliest one; there must be one.
func (r *run) first() next { return r.timers[len(r.timers)-1] }

func (r *run) pop() { r.timers = r.timers[:len(r.timers)-1] }

// insert puts a timer behind all that are not later.
func (r *run) insert(when uint64, id uint32) {
	r.timers = append(r.timers, next{})
	i := len(r.timers) - 1
	for i > 0 && r.timers[i-1].when <= when {
		r.timers[i] = r.timers[i-1]
		i--
	}
	r.timers[i] = next{when, id}
}

// gather takes the single chunk of s, a slot of level l that the cursor has just
// entered, over into the run. The hints tell the order, so sorting them
// need not wait for the entries, which clear has begun to fetch.
func (w *Wheel[T]) gather(s *slot, l int) {
	if s.head == 0 {
		return
	}
	w.sweep.leave(s)
	first := s.head
	s.head, s.tail = 0, nil
	c := w.chunks.at(first)
	hints := c.hint[c.from:c.n]
	alive := w.clear(hints)
	for i, h := range hints {
		if alive&(1<<i) == 0 {
			continue
		}
		when := h.when(w.cursor)
		if wide(l) {
			when = w.slab.at(h.id()).when()
		}
		if level(when^w.cursor) < l {
			w.run.insert(when, h.id())
		} else { // postponed to beyond the slot
			w.place(when, h.id())
		}
	}
	w.chunks.release(first)
}
