package wheel

import "math/bits"

const (
	slotBits   = 6
	slotCount  = 1 << slotBits
	levelCount = 8
)

// A node divides one span of time into 64 slots. Of each level at most a few
// exist: the one the cursor is in, and those that split a slot ahead of it.
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
