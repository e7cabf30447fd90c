package alive

import (
	"iter"
	"math"
	"math/bits"
	"slices"
)

// An block holds the seqs of one run of 65,536, by their lower 16 bits. How
// depends on their number alone:
//
//	65536           nothing is kept
//	4097 to 65535   bits, 8 KB
//	1 to 4096       low, sorted, 2 bytes each
type block struct {
	epoch uint64
	count uint32
	low   []uint16
	bits  *bitmap
}

type bitmap [blockSeqs / 64]uint64

const maxLow = blockSeqs / 16 // where both take 8 KB

func (b *block) clone(epoch uint64) *block {
	c := &block{epoch: epoch, count: b.count, low: slices.Clone(b.low)}
	if b.bits != nil {
		copied := *b.bits
		c.bits = &copied
	}
	return c
}

func (b *block) contains(low uint16) bool {
	switch {
	case b.count == blockSeqs:
		return true
	case b.bits != nil:
		return b.bits[low/64]>>(low%64)&1 == 1
	default:
		_, found := slices.BinarySearch(b.low, low)
		return found
	}
}

func (b *block) addRange(first, last uint16) {
	if b.bits == nil && b.count+uint32(last-first)+1 <= maxLow {
		b.addLow(first, last)
		return
	}
	set, n := b.asBits(), int(b.count)
	for w, mask := range words(first, last) {
		n += bits.OnesCount64(mask &^ set[w])
		set[w] |= mask
	}
	b.setBits(set, n)
}

// addLow adds to a block that holds little afterwards too.
func (b *block) addLow(first, last uint16) {
	from, to := b.find(first, last)
	b.low = slices.Delete(b.low, from, to)
	b.low = slices.Insert(b.low, from, make([]uint16, int(last-first)+1)...)
	for i := range b.low[from : from+int(last-first)+1] {
		b.low[from+i] = first + uint16(i)
	}
	b.count = uint32(len(b.low))
}

func (b *block) removeRange(first, last uint16) {
	if b.bits == nil && b.count <= maxLow {
		from, to := b.find(first, last)
		b.low = slices.Delete(b.low, from, to)
		b.count = uint32(len(b.low))
		return
	}
	set, n := b.asBits(), int(b.count)
	for w, mask := range words(first, last) {
		n -= bits.OnesCount64(mask & set[w])
		set[w] &^= mask
	}
	b.setBits(set, n)
}

// removeBits takes what is marked out of the block.
func (b *block) removeBits(marked *bitmap) {
	if !b.isLow() {
		set := b.asBits()
		for w, mask := range marked {
			set[w] &^= mask
		}
		b.setBits(set, set.count())
		return
	}
	kept, to := 0, b.low
	for _, low := range b.low { // no branch, for none could be foreseen
		to[kept] = low
		kept += int(1 - marked[low/64]>>(low%64)&1)
	}
	b.low, b.count = to[:kept], uint32(kept)
}

// isLow reports whether low is the block's form.
func (b *block) isLow() bool { return b.bits == nil && b.count < blockSeqs }

func (b *bitmap) count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// asBits returns what the block holds as bits, its own where it has them.
func (b *block) asBits() *bitmap {
	if b.bits != nil {
		return b.bits
	}
	made := new(bitmap)
	if b.count == blockSeqs {
		for w := range made {
			made[w] = math.MaxUint64
		}
	}
	for _, low := range b.low {
		made[low/64] |= 1 << (low % 64)
	}
	return made
}

// setBits makes n bits what the block holds, in the form that their number asks for.
func (b *block) setBits(set *bitmap, n int) {
	b.count, b.low, b.bits = uint32(n), nil, nil
	switch {
	case n == blockSeqs:
	case n > maxLow:
		b.bits = set
	default:
		b.low = make([]uint16, 0, n)
		for w, word := range set {
			for ; word != 0; word &= word - 1 {
				b.low = append(b.low, uint16(w*64+bits.TrailingZeros64(word)))
			}
		}
	}
}

// countRange returns how many of the block's seqs lie within first and last.
func (b *block) countRange(first, last uint16) (n int) {
	switch {
	case b.count == blockSeqs:
		return int(last-first) + 1
	case first == 0 && last == blockSeqs-1:
		return int(b.count)
	case b.bits != nil:
		for w, mask := range words(first, last) {
			n += bits.OnesCount64(b.bits[w] & mask)
		}
		return n
	default:
		from, to := b.find(first, last)
		return to - from
	}
}

// find returns the places in low of what lies within first and last.
func (b *block) find(first, last uint16) (from, to int) {
	from, _ = slices.BinarySearch(b.low, first)
	to, found := slices.BinarySearch(b.low, last)
	if found {
		to++
	}
	return from, to
}

// all yields what the block holds, in order.
func (b *block) all() iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		if b.isLow() {
			for _, low := range b.low {
				if !yield(low) {
					return
				}
			}
			return
		}
		for w, word := range b.asBits() {
			for ; word != 0; word &= word - 1 {
				if !yield(uint16(w*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// words yields the words of a bitmap that the run first to last lies in, each
// with the run's bits.
func words(first, last uint16) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for w := int(first / 64); w <= int(last/64); w++ {
			mask := uint64(math.MaxUint64)
			if w == int(first/64) {
				mask <<= first % 64
			}
			if w == int(last/64) {
				mask &= math.MaxUint64 >> (63 - last%64)
			}
			if !yield(w, mask) {
				return
			}
		}
	}
}
