package wheel

import "math"

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
