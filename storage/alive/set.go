// Package alive holds which messages are pending: a set of seqs that is copied on write,
// and the file that keeps it. What a message is, and when a set is written, is not known
// here. DESIGN.md has formats and invariants.
package alive

import (
	"iter"
	"slices"
)

// An Set is a set of seqs in two levels of fixed width, so that what is
// frozen shares all with what goes on, node by node and block by block:
//
//	root   seq >> 24         nodes, nil when empty
//	node   seq >> 16 & 255   blocks, nil when empty, and how many seqs they hold
//	block  seq & 65535       see block
//
// A node or block may be changed by the set whose epoch it was made in; any other
// copies it first. freeze and thaw raise the epoch of the set that goes on
// changing, which then owns nothing: they cost a copy of the root. A count over a
// range looks at nodes, and inside the two at its ends. What is frozen is never
// changed and needs no lock.
type Set struct {
	epoch uint64
	root  []*node
	count uint64
}

type node struct {
	epoch  uint64
	count  uint64
	blocks [nodeBlocks]*block
}

const (
	blockBits  = 16
	blockSeqs  = 1 << blockBits
	nodeBits   = 24
	nodeSeqs   = 1 << nodeBits
	nodeBlocks = nodeSeqs / blockSeqs

	// maxSeq bounds the root when bytes from disk are read. A million messages a
	// second reach it after nine years.
	maxSeq = 1<<48 - 1
)

func NewSet() *Set { return &Set{epoch: 1} }

// Count returns how many seqs are in the set.
func (s *Set) Count() uint64 { return s.count }

// Freeze returns the set as it is now; it must not be changed any more.
func (s *Set) Freeze() *Set {
	frozen := &Set{epoch: s.epoch, root: slices.Clone(s.root), count: s.count}
	s.epoch++
	return frozen
}

// Thaw returns a set that begins as this frozen one.
func (s *Set) Thaw() *Set {
	return &Set{epoch: s.epoch + 1, root: slices.Clone(s.root), count: s.count}
}

func (s *Set) block(seq uint64) *block {
	if seq>>nodeBits >= uint64(len(s.root)) {
		return nil
	}
	n := s.root[seq>>nodeBits]
	if n == nil {
		return nil
	}
	return n.blocks[seq>>blockBits%nodeBlocks]
}

func (s *Set) Contains(seq uint64) bool {
	b := s.block(seq)
	return b != nil && b.contains(uint16(seq))
}

// ownNode returns the node that holds seq, to be changed.
func (s *Set) ownNode(seq uint64) *node {
	at := seq >> nodeBits
	for uint64(len(s.root)) <= at {
		s.root = append(s.root, nil)
	}
	switch n := s.root[at]; {
	case n == nil:
		s.root[at] = &node{epoch: s.epoch}
	case n.epoch != s.epoch:
		copied := *n
		copied.epoch = s.epoch
		s.root[at] = &copied
	}
	return s.root[at]
}

// change gives the block that holds seq to what changes it, and books how many
// seqs it holds more or fewer afterwards.
func (s *Set) change(seq uint64, by func(b *block)) {
	n := s.ownNode(seq)
	at := seq >> blockBits % nodeBlocks
	b := n.blocks[at]
	switch {
	case b == nil:
		b = &block{epoch: s.epoch}
	case b.epoch != s.epoch:
		b = b.clone(s.epoch)
	}
	before := b.count
	by(b)
	n.count += uint64(b.count) - uint64(before)
	s.count += uint64(b.count) - uint64(before)
	n.blocks[at] = b
	if b.count == 0 {
		n.blocks[at] = nil
	}
	if n.count == 0 {
		s.root[seq>>nodeBits] = nil
	}
}

// Add reports whether seq was not in the set.
func (s *Set) Add(seq uint64) bool {
	if s.Contains(seq) {
		return false
	}
	s.AddRange(seq, seq)
	return true
}

// AddRange puts the seqs first to last into the set.
func (s *Set) AddRange(first, last uint64) {
	for part := range (run{first, last}).blocks() {
		s.change(part.first, func(b *block) { b.addRange(uint16(part.first), uint16(part.last)) })
	}
}

// remove reports whether seq was in the set.
func (s *Set) remove(seq uint64) bool {
	if !s.Contains(seq) {
		return false
	}
	s.change(seq, func(b *block) { b.removeRange(uint16(seq), uint16(seq)) })
	return true
}

// RemoveRange takes the seqs first to last out of the set and returns how many of
// them were in.
func (s *Set) RemoveRange(first, last uint64) uint64 {
	if first == last {
		if s.remove(first) {
			return 1
		}
		return 0
	}
	before := s.count
	last = min(last, uint64(len(s.root))<<nodeBits-1)
	for first <= last && len(s.root) > 0 {
		n, end := s.root[first>>nodeBits], first|(nodeSeqs-1)
		switch {
		case n == nil:
		case first%nodeSeqs == 0 && end <= last:
			s.root[first>>nodeBits] = nil
			s.count -= n.count
		default:
			s.removeWithin(run{first, min(end, last)})
		}
		first = end + 1
	}
	return before - s.count
}

// removeWithin takes a run within one node out of the set.
func (s *Set) removeWithin(r run) {
	for part := range r.blocks() {
		if b := s.block(part.first); b != nil && b.countRange(uint16(part.first), uint16(part.last)) > 0 {
			s.change(part.first, func(b *block) { b.removeRange(uint16(part.first), uint16(part.last)) })
		}
	}
}

// CountRange returns how many of the seqs first to last are in the set.
func (s *Set) CountRange(first, last uint64) (total uint64) {
	for at := first >> nodeBits; at <= last>>nodeBits && at < uint64(len(s.root)); at++ {
		n, begin := s.root[at], at<<nodeBits
		switch end := begin + nodeSeqs - 1; {
		case n == nil:
		case first <= begin && end <= last:
			total += n.count
		default:
			total += n.countWithin(run{max(first, begin), min(last, end)})
		}
	}
	return total
}

// countWithin returns how many seqs of a run within the node are in it.
func (n *node) countWithin(r run) (total uint64) {
	for part := range r.blocks() {
		if b := n.blocks[part.first>>blockBits%nodeBlocks]; b != nil {
			total += uint64(b.countRange(uint16(part.first), uint16(part.last)))
		}
	}
	return total
}

// put makes b the block of this number, where the set has none.
func (s *Set) put(number uint64, b *block) {
	n := s.ownNode(number << blockBits)
	b.epoch = s.epoch
	n.blocks[number%nodeBlocks] = b
	n.count += uint64(b.count)
	s.count += uint64(b.count)
}

// all yields the blocks with their numbers, in order.
func (s *Set) all() iter.Seq2[uint64, *block] {
	return func(yield func(uint64, *block) bool) {
		for i, n := range s.root {
			if n == nil {
				continue
			}
			for j, b := range n.blocks {
				if b != nil && !yield(uint64(i)*nodeBlocks+uint64(j), b) {
					return
				}
			}
		}
	}
}

// Within yields those of the seqs first to last that are in the set, in order.
func (s *Set) Within(first, last uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for part := range (run{first, last}).blocks() {
			b := s.block(part.first)
			if b == nil {
				continue
			}
			for low := range b.all() {
				seq := part.first&^(blockSeqs-1) | uint64(low)
				if part.first <= seq && seq <= part.last && !yield(seq) {
					return
				}
			}
		}
	}
}

// A run is the seqs first to last, both included.
type run struct{ first, last uint64 }

// blocks yields the run cut at the ends of blocks.
func (r run) blocks() iter.Seq[run] {
	return func(yield func(run) bool) {
		for first := r.first; first <= r.last; {
			last := min(first|(blockSeqs-1), r.last)
			if !yield(run{first, last}) || last == r.last {
				return
			}
			first = last + 1
		}
	}
}
