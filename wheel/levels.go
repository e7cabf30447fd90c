package wheel

import (
	"math"
	"math/bits"
)

const (
	slotBits   = 6
	slotCount  = 1 << slotBits
	levelCount = 8
)

// A node divides one span of time into 64 slots. There are at most a few of each
// level: the one the cursor is in, and those that split a slot ahead of it.
type node struct {
	occupied uint64 // bit i: slots[i] is not empty
	slots    [slotCount]slot
}

// A slot is a list of hints, in order of adding. One that has been split holds
// child instead; while it is being split, both: the list's rest is younger
// than what the child has of it already.
type slot struct {
	tail     *chunk // nil is none
	child    *node
	min, max uint64 // bounds of the list's deadlines, while head != 0
	head     uint32 // first chunk, of which tail is the last; 0 is none
}

// first returns the index of the first occupied slot; there must be one.
func (n *node) first() int { return bits.TrailingZeros64(n.occupied) }

// earliest returns a lower bound of the deadlines below n, which is not empty.
func (n *node) earliest() uint64 {
	for {
		s := &n.slots[n.first()]
		if s.child == nil || s.head != 0 {
			return s.min
		}
		n = s.child
	}
}

// add puts a hint at the end of the list, or reports false when its last chunk
// is full or there is none. A nil s, of a level without a node, has none.
func (s *slot) add(when uint64, id uint32) bool {
	if s == nil || s.tail == nil || s.tail.n >= chunkHints {
		return false
	}
	c := s.tail
	c.hint[c.n] = newHint(when, id)
	c.n++
	if when < s.min {
		s.min = when
	}
	if when > s.max {
		s.max = when
	}
	return true
}

// level returns the level of a deadline whose distance from the cursor, bit by
// bit, is x: that of the highest digit in which the two differ.
func level(x uint64) int { return (bits.Len64(x|1) - 1) / slotBits }

// digit returns the slot of a tick on a level.
func digit(tick uint64, level int) int {
	return int(tick>>(slotBits*level&63)) & (slotCount - 1)
}

// A nodePool keeps all nodes, so that a sweep can visit them, and the empty
// ones for reuse.
type nodePool struct {
	all  []*node
	free []*node
}

func (p *nodePool) get() *node {
	if k := len(p.free); k > 0 {
		n := p.free[k-1]
		p.free = p.free[:k-1]
		return n
	}
	n := new(node)
	p.all = append(p.all, n)
	return n
}

// put takes back a node that is empty.
func (p *nodePool) put(n *node) {
	if n != nil {
		p.free = append(p.free, n)
	}
}

const (
	chunkHints     = 63
	chunkPageBits  = 7
	chunkPageCount = 1 << chunkPageBits
)

// A chunk is 512 bytes of a slot's list, oldest hint first.
//
//	+------+------+---+--------+--------+-- ... --+---------+
//	| next | from | n | hint 0 | hint 1 |         | hint 62 |
//	+------+------+---+--------+--------+-- ... --+---------+
//	  u32    u16  u16    u64
//
// Hints before from have been fired; those from n on are unused.
type chunk struct {
	next uint32
	from uint16
	n    uint16
	hint [chunkHints]hint
}

// len returns the number of hints that are left.
func (c *chunk) len() int { return int(c.n - c.from) }

// A hint is the low half of a deadline, and the id of its timer. The slot it
// lies in supplies the upper half. A hint may be out of date: its timer cancelled
// or postponed.
type hint uint64

func newHint(when uint64, id uint32) hint { return hint(when)<<32 | hint(id) }

func (h hint) id() uint32 { return uint32(h) }

// digit returns six bits of the deadline, of which shift says the lowest, as
// [digit] does for a level.
func (h hint) digit(shift int) int { return int(h>>((32+shift)&63)) & (slotCount - 1) }

// when restores the deadline from any other of the same slot, which must not
// be wider than 2^32 ticks.
func (h hint) when(sibling uint64) uint64 { return sibling&^(1<<32-1) | uint64(h>>32) }

// A chunkPool hands out chunks by number; 0 is none. Whole pages, never
// copied, so that growing costs no pause.
type chunkPool struct {
	pages []*[chunkPageCount]chunk
	fresh uint32 // chunks from here on were never used
	free  uint32 // first of the freed ones, linked by next
}

func (p *chunkPool) at(i uint32) *chunk {
	return &p.pages[i>>chunkPageBits][i%chunkPageCount]
}

func (p *chunkPool) alloc() uint32 {
	if i := p.free; i != 0 {
		c := p.at(i)
		p.free = c.next
		c.next, c.from, c.n = 0, 0, 0
		return i
	}
	if int(p.fresh>>chunkPageBits) == len(p.pages) {
		p.pages = grow(p.pages, math.MaxInt)
		p.fresh = max(p.fresh, 1)
	}
	i := p.fresh
	p.fresh++
	return i
}

// extend adds an empty chunk to the list of s, for a hint of tick when.
func (p *chunkPool) extend(s *slot, when uint64) {
	i := p.alloc()
	if s.head == 0 {
		s.head = i
		s.min, s.max = when, when
	} else {
		s.tail.next = i
	}
	s.tail = p.at(i)
}

// short reports whether s is empty or a single chunk: nothing to split.
func (p *chunkPool) short(s *slot) bool {
	return s.child == nil && (s.head == 0 || s.tail == p.at(s.head))
}

func (p *chunkPool) release(i uint32) {
	p.at(i).next = p.free
	p.free = i
}

// slot returns the slot for a tick that is not before the cursor, or nil when
// the cursor has no node on its level.
func (w *Wheel[T]) slot(when uint64) *slot {
	l := level(when ^ w.cursor)
	if n := w.path[l]; n != nil {
		return &n.slots[digit(when, l)]
	}
	return nil
}

// place puts a hint into the levels; when is not before the cursor. It stays
// small for the usual case, a list that has room, so that the processor can
// overlap the cache misses of one call with those of the next.
func (w *Wheel[T]) place(when uint64, id uint32) {
	if !w.slot(when).add(when, id) {
		w.placeSlow(when, id)
	}
}

func (w *Wheel[T]) placeSlow(when uint64, id uint32) {
	l := level(when ^ w.cursor)
	w.levels |= 1 << l
	if w.path[l] == nil {
		w.path[l] = w.nodes.get()
	}
	w.placeBelow(w.path[l], l, when, id)
}

// placeBelow puts a hint into n, a node of level l, or into a split slot's
// child. A slot that is still being split takes it at the end of its list, so
// that it stays behind the older hints.
func (w *Wheel[T]) placeBelow(n *node, l int, when uint64, id uint32) {
	for {
		i := digit(when, l)
		n.occupied |= 1 << i
		s := &n.slots[i]
		if s.child == nil || s.head != 0 {
			if !s.add(when, id) {
				w.chunks.extend(s, when)
				s.add(when, id)
			}
			return
		}
		n, l = s.child, l-1
	}
}
