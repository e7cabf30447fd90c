package wheel

import (
	"errors"
	"fmt"
)

// A census counts what a walk over the whole structure meets.
type census struct {
	seen       map[uint32]bool
	live, dead int
}

// broken walks the whole wheel and returns the first invariant it finds broken.
func (w *Wheel[T]) broken() error {
	c := census{seen: map[uint32]bool{}}
	for l, n := range w.path {
		if (w.levels>>l&1 != 0) != (n != nil && n.occupied != 0) {
			return fmt.Errorf("level %d: summary bit %d is wrong", l, w.levels>>l&1)
		}
		if n == nil {
			continue
		}
		if l > 0 && n.occupied>>digit(w.cursor, l)&1 != 0 {
			return fmt.Errorf("level %d: the cursor's slot %d is occupied", l, digit(w.cursor, l))
		}
		base := w.cursor &^ (1<<(slotBits*(l+1)) - 1)
		if err := w.brokenNode(n, l, base, &c); err != nil {
			return err
		}
	}
	if s := w.sweep.at; s != nil && (s.head == 0 || w.chunks.short(s)) {
		return errors.New("the sweep stands in a slot that may be sorted")
	}
	if err := w.brokenRun(&c); err != nil {
		return err
	}
	if c.dead != w.dead {
		return fmt.Errorf("%d cancelled hints in slots, counted %d", c.dead, w.dead)
	}
	late := 0
	for _, t := range w.behind.heap {
		if !w.slab.isLive(t.id) {
			late++
			c.dead++
			c.seen[t.id] = true
			continue
		}
		if c.seen[t.id] || t.when >= w.cursor || w.slab.when(t.id) != t.when || !w.slab.isAside(t.id) {
			return fmt.Errorf("behind: id %d at %d is misplaced", t.id, t.when)
		}
		c.live++
		c.seen[t.id] = true
	}
	if late != w.behind.dead {
		return fmt.Errorf("behind: %d cancelled, counted %d", late, w.behind.dead)
	}
	if c.live != w.live {
		return fmt.Errorf("%d live timers reachable, counted %d", c.live, w.live)
	}
	return w.brokenSlab(c)
}

func (w *Wheel[T]) brokenRun(c *census) error {
	if w.run.len() > chunkHints*(levelCount-1) {
		return fmt.Errorf("the run has %d timers", w.run.len())
	}
	for i, t := range w.run.timers {
		if t.when < w.cursor || i > 0 && t.when > w.run.timers[i-1].when {
			return fmt.Errorf("run: id %d at %d is out of order", t.id, t.when)
		}
		if c.seen[t.id] {
			return fmt.Errorf("id %d has two hints", t.id)
		}
		c.seen[t.id] = true
		if !w.slab.isLive(t.id) {
			c.dead++
			continue
		}
		c.live++
		if when := w.slab.when(t.id); when < t.when || when > t.when && !w.slab.isAside(t.id) {
			return fmt.Errorf("run: id %d is due at %d, not %d", t.id, when, t.when)
		}
	}
	return nil
}

func (w *Wheel[T]) brokenNode(n *node, l int, base uint64, c *census) error {
	for i := range n.slots {
		s := &n.slots[i]
		start := base + uint64(i)<<(slotBits*l)
		if n.occupied>>i&1 == 0 {
			if s.head != 0 || s.tail != nil || s.child != nil {
				return fmt.Errorf("level %d slot %d: not empty, but no bit", l, i)
			}
			continue
		}
		if start+(1<<(slotBits*l)) <= w.cursor {
			return fmt.Errorf("level %d slot %d: occupied behind the cursor", l, i)
		}
		if err := w.brokenList(s, l, start, c); err != nil {
			return fmt.Errorf("level %d slot %d: %w", l, i, err)
		}
		if s.child != nil {
			if s.child.occupied == 0 && s.head == 0 {
				return fmt.Errorf("level %d slot %d: empty child", l, i)
			}
			if err := w.brokenNode(s.child, l-1, start, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Wheel[T]) brokenList(s *slot, l int, start uint64, c *census) error {
	var last *chunk
	for at := s.head; at != 0; at = w.chunks.at(at).next {
		k := w.chunks.at(at)
		last = k
		for _, h := range k.hint[k.from:k.n] {
			if c.seen[h.id()] {
				return fmt.Errorf("id %d has two hints", h.id())
			}
			c.seen[h.id()] = true
			when := h.when(start)
			if !wide(l) && (when < start || when-start >= 1<<(slotBits*l)) {
				return fmt.Errorf("id %d at %d does not belong here", h.id(), when)
			}
			if !wide(l) && (when < s.min || when > s.max) {
				return fmt.Errorf("id %d at %d is outside %d to %d", h.id(), when, s.min, s.max)
			}
			if !w.slab.isLive(h.id()) {
				c.dead++
				continue
			}
			c.live++
			if due := w.slab.when(h.id()); !wide(l) && (due < when || due > when && !w.slab.isAside(h.id())) {
				return fmt.Errorf("id %d is due at %d, its hint says %d", h.id(), due, when)
			}
		}
	}
	if s.tail != last {
		return errors.New("tail is not the last chunk")
	}
	return nil
}

// brokenSlab checks that every id is in use, free, worn out or still to be handed
// out, and only one of these.
func (w *Wheel[T]) brokenSlab(c census) error {
	f := &w.slab.free
	free := append([]hint(nil), f.ready[:f.n]...)
	for i := f.more; i != 0; i = w.chunks.at(i).next {
		free = append(free, w.chunks.at(i).hint[:]...)
	}
	for _, h := range free {
		if c.seen[h.id()] || w.slab.isLive(h.id()) {
			return fmt.Errorf("id %d is both free and in use, or free twice", h.id())
		}
		c.seen[h.id()] = true
	}
	worn := 0
	for _, p := range w.slab.pages {
		if p.low[0] == pageSize-1 && p.epoch() != lastEpoch {
			return errors.New("all ids of a page rest, and no epoch begins")
		}
		worn += int(p.low[0])
	}
	used := int(w.slab.next - (w.slab.next+pageSize-1)/pageSize) // place 0 of each page is none
	if c.live+c.dead+len(free)+worn != used {
		return fmt.Errorf("%d live, %d cancelled, %d free, %d worn out of %d ids", c.live, c.dead, len(free), worn, used)
	}
	return nil
}

func (s *slab[T]) isAside(id uint32) bool {
	p, i := s.at(id)
	return p.state[i]&aside != 0
}
