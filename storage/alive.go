package storage

import (
	"iter"
	"slices"
)

// An aliveSet is a set of seqs in two levels of fixed width, so that what is
// frozen shares all with what goes on, node by node and block by block:
//
//	root   seq >> 24         nodes, nil when empty
//	node   seq >> 16 & 255   blocks, nil when empty, and how many seqs they hold
//	block  seq & 65535       see aliveBlock
//
// A node or block may be changed by the set whose epoch it was made in; any other
// copies it first. freeze and thaw raise the epoch of the set that goes on
// changing, which then owns nothing: they cost a copy of the root. A count over a
// range looks at nodes, and inside the two at its ends. What is frozen is never
// changed and needs no lock.
type aliveSet struct {
	epoch uint64
	root  []*aliveNode
	count uint64
}

type aliveNode struct {
	epoch  uint64
	count  uint64
	blocks [nodeBlocks]*aliveBlock
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

func newAliveSet() *aliveSet { return &aliveSet{epoch: 1} }

// freeze returns the set as it is now; it must not be changed any more.
func (s *aliveSet) freeze() *aliveSet {
	frozen := &aliveSet{epoch: s.epoch, root: slices.Clone(s.root), count: s.count}
	s.epoch++
	return frozen
}

// thaw returns a set that begins as this frozen one.
func (s *aliveSet) thaw() *aliveSet {
	return &aliveSet{epoch: s.epoch + 1, root: slices.Clone(s.root), count: s.count}
}

func (s *aliveSet) block(seq uint64) *aliveBlock {
	if seq>>nodeBits >= uint64(len(s.root)) {
		return nil
	}
	n := s.root[seq>>nodeBits]
	if n == nil {
		return nil
	}
	return n.blocks[seq>>blockBits%nodeBlocks]
}

func (s *aliveSet) contains(seq uint64) bool {
	b := s.block(seq)
	return b != nil && b.contains(uint16(seq))
}

// ownNode returns the node that holds seq, to be changed.
func (s *aliveSet) ownNode(seq uint64) *aliveNode {
	at := seq >> nodeBits
	for uint64(len(s.root)) <= at {
		s.root = append(s.root, nil)
	}
	switch n := s.root[at]; {
	case n == nil:
		s.root[at] = &aliveNode{epoch: s.epoch}
	case n.epoch != s.epoch:
		copied := *n
		copied.epoch = s.epoch
		s.root[at] = &copied
	}
	return s.root[at]
}

// change gives the block that holds seq to what changes it, and books how many
// seqs it holds more or fewer afterwards.
func (s *aliveSet) change(seq uint64, by func(b *aliveBlock)) {
	n := s.ownNode(seq)
	at := seq >> blockBits % nodeBlocks
	b := n.blocks[at]
	switch {
	case b == nil:
		b = &aliveBlock{epoch: s.epoch}
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

// add reports whether seq was not in the set.
func (s *aliveSet) add(seq uint64) bool {
	if s.contains(seq) {
		return false
	}
	s.addRange(SeqRun{seq, seq})
	return true
}

// addRange puts a run into the set.
func (s *aliveSet) addRange(run SeqRun) {
	for part := range run.blocks() {
		s.change(part.First, func(b *aliveBlock) { b.addRange(uint16(part.First), uint16(part.Last)) })
	}
}

// remove reports whether seq was in the set.
func (s *aliveSet) remove(seq uint64) bool {
	if !s.contains(seq) {
		return false
	}
	s.change(seq, func(b *aliveBlock) { b.removeRange(uint16(seq), uint16(seq)) })
	return true
}

// removeRange takes a run out of the set and returns how many of it were in.
func (s *aliveSet) removeRange(run SeqRun) uint64 {
	if run.First == run.Last {
		if s.remove(run.First) {
			return 1
		}
		return 0
	}
	before := s.count
	run.Last = min(run.Last, uint64(len(s.root))<<nodeBits-1)
	for run.First <= run.Last && len(s.root) > 0 {
		n, end := s.root[run.First>>nodeBits], run.First|(nodeSeqs-1)
		switch {
		case n == nil:
		case run.First%nodeSeqs == 0 && end <= run.Last:
			s.root[run.First>>nodeBits] = nil
			s.count -= n.count
		default:
			s.removeWithin(SeqRun{run.First, min(end, run.Last)})
		}
		run.First = end + 1
	}
	return before - s.count
}

// removeWithin takes a run within one node out of the set.
func (s *aliveSet) removeWithin(run SeqRun) {
	for part := range run.blocks() {
		if b := s.block(part.First); b != nil && b.countRange(uint16(part.First), uint16(part.Last)) > 0 {
			s.change(part.First, func(b *aliveBlock) { b.removeRange(uint16(part.First), uint16(part.Last)) })
		}
	}
}

// countRange returns how many seqs of the run are in the set.
func (s *aliveSet) countRange(run SeqRun) (total uint64) {
	for at := run.First >> nodeBits; at <= run.Last>>nodeBits && at < uint64(len(s.root)); at++ {
		n, first := s.root[at], at<<nodeBits
		switch last := first + nodeSeqs - 1; {
		case n == nil:
		case run.First <= first && last <= run.Last:
			total += n.count
		default:
			total += n.countRange(SeqRun{max(run.First, first), min(run.Last, last)})
		}
	}
	return total
}

func (n *aliveNode) countRange(run SeqRun) (total uint64) {
	for part := range run.blocks() {
		if b := n.blocks[part.First>>blockBits%nodeBlocks]; b != nil {
			total += uint64(b.countRange(uint16(part.First), uint16(part.Last)))
		}
	}
	return total
}

// put makes b the block of this number, where the set has none.
func (s *aliveSet) put(number uint64, b *aliveBlock) {
	n := s.ownNode(number << blockBits)
	b.epoch = s.epoch
	n.blocks[number%nodeBlocks] = b
	n.count += uint64(b.count)
	s.count += uint64(b.count)
}

// all yields the blocks with their numbers, in order.
func (s *aliveSet) all() iter.Seq2[uint64, *aliveBlock] {
	return func(yield func(uint64, *aliveBlock) bool) {
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

// within yields the seqs of the run that are in the set, in order.
func (s *aliveSet) within(run SeqRun) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for part := range run.blocks() {
			b := s.block(part.First)
			if b == nil {
				continue
			}
			for low := range b.all() {
				seq := part.First&^(blockSeqs-1) | uint64(low)
				if part.First <= seq && seq <= part.Last && !yield(seq) {
					return
				}
			}
		}
	}
}

// blocks yields the run cut at the ends of blocks.
func (r SeqRun) blocks() iter.Seq[SeqRun] {
	return func(yield func(SeqRun) bool) {
		for first := r.First; first <= r.Last; {
			last := min(first|(blockSeqs-1), r.Last)
			if !yield(SeqRun{first, last}) || last == r.Last {
				return
			}
			first = last + 1
		}
	}
}
