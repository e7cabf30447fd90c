package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// encodeChange writes what takes the set from its state of then, when before was
// the next seq, to the one of now, when after is.
func encodeChange(then, now *aliveSet, before, after uint64) record {
	c := changeWriter{b: binary.AppendUvarint(binary.AppendUvarint(nil, before), after)}
	for at, was := range then.root {
		var is *aliveNode
		if at < len(now.root) {
			is = now.root[at]
		}
		if was != is { // what is shared has not changed
			c.node(uint64(at)*nodeBlocks, was, is)
		}
	}
	seq := before
	for alive := range now.within(SeqRun{before, after - 1}) {
		c.run(seq, alive)
		seq = alive + 1
	}
	c.run(seq, after)
	c.finish()
	return record{version: 1, payload: c.b}
}

// changeWriter joins runs that touch and writes them.
type changeWriter struct {
	b          []byte
	end        uint64 // of the run written last
	first, off uint64 // the run gathered, first to off exclusive
}

func (c *changeWriter) run(first, off uint64) {
	switch {
	case first >= off:
	case first == c.off:
		c.off = off
	default:
		c.finish()
		c.first, c.off = first, off
	}
}

func (c *changeWriter) finish() {
	length := c.off - c.first
	if length == 0 {
		return
	}
	gap := c.first - c.end
	if length == 1 {
		c.b = binary.AppendUvarint(c.b, gap<<1)
	} else {
		c.b = binary.AppendUvarint(c.b, gap<<1|1)
		c.b = binary.AppendUvarint(c.b, length-2)
	}
	c.end, c.first = c.off, c.off
}

// node writes what was in the node and is no longer. first is its first block.
func (c *changeWriter) node(first uint64, was, is *aliveNode) {
	if is == nil {
		is = new(aliveNode)
	}
	if was == nil {
		return
	}
	for i, b := range was.blocks {
		if b == nil || b == is.blocks[i] {
			continue
		}
		now := is.blocks[i]
		if now == nil {
			now = new(aliveBlock)
		}
		c.block((first+uint64(i))<<blockBits, b, now)
	}
}

func (c *changeWriter) block(first uint64, was, now *aliveBlock) {
	if was.count == blockSeqs && now.count == 0 {
		c.run(first, first+blockSeqs)
		return
	}
	if was.isLow() && now.isLow() {
		at := 0
		for _, low := range was.low {
			for at < len(now.low) && now.low[at] < low {
				at++
			}
			if at == len(now.low) || now.low[at] != low {
				c.run(first+uint64(low), first+uint64(low)+1)
			}
		}
		return
	}
	before, after := was.asBits(), now.asBits()
	for w := range before {
		for gone := before[w] &^ after[w]; gone != 0; gone &= gone - 1 {
			seq := first + uint64(w*64+bits.TrailingZeros64(gone))
			c.run(seq, seq+1)
		}
	}
}

// A change is one piece, read run by run.
type change struct {
	before, after uint64
	runs          decoder
	end           uint64 // of the run read last
	next          SeqRun // the run at hand; First is math.MaxUint64 at the end
}

func openChange(payload []byte, last uint64) (change, error) {
	c := change{runs: decoder{b: payload}}
	c.before, c.after = c.runs.uvarint(), c.runs.uvarint()
	if c.runs.failed || c.before > c.after || c.after > maxSeq || last != 0 && c.before != last {
		return c, fmt.Errorf("%w: alive-set: change from seq %d to %d after one to %d", ErrCorrupt, c.before, c.after, last)
	}
	return c, c.read()
}

// read takes the next run.
func (c *change) read() error {
	if len(c.runs.b) == 0 {
		c.next = SeqRun{math.MaxUint64, math.MaxUint64}
		return nil
	}
	gap, length := c.runs.uvarint(), uint64(1)
	if gap&1 == 1 {
		length = c.runs.uvarint() + 2
	}
	first := c.end + gap>>1
	if c.runs.failed || gap>>1 > maxSeq || length > maxSeq || first+length > c.after {
		return fmt.Errorf("%w: alive-set: change to seq %d does not decode", ErrCorrupt, c.after)
	}
	c.next, c.end = SeqRun{first, first + length - 1}, first+length
	return nil
}

// changes are those of one file, read side by side: a seq is born once and dies once,
// so their order does not matter. Deaths are gathered block by block, in order, for each
// change kills all over the set.
type changes struct {
	list []change
	born SeqRun // all that were; of none First is above Last
	dead deaths
}

// openChanges begins to read change pieces, the whole of b, and returns the next seq
// after them, 0 when there are none.
func openChanges(b []byte) (c *changes, next uint64, err error) {
	c = &changes{born: SeqRun{1, 0}}
	for len(b) > 0 {
		payload, rest, err := nextPiece("change of the alive-set", newestChangePiece, b)
		if err != nil {
			return nil, 0, err
		}
		opened, err := openChange(payload, next)
		if err != nil {
			return nil, 0, err
		}
		c.list = append(c.list, opened)
		next, b = opened.after, rest
	}
	if len(c.list) > 0 {
		c.born = SeqRun{c.list[0].before, next - 1}
	}
	return c, next, nil
}

// settle takes what is dead out of a block of the base, unless some of it was born since.
func (c *changes) settle(number uint64, b *aliveBlock) error {
	if number >= c.born.First>>blockBits {
		return nil
	}
	if err := c.dead.gather(c.list, number); err != nil {
		return err
	}
	c.dead.bury(b)
	return nil
}

// finish adds what was born since the base, and takes out what died of it.
func (c *changes) finish(s *aliveSet) error {
	s.addRange(c.born)
	for number := c.born.First >> blockBits; number <= max(c.born.First, c.born.Last)>>blockBits; number++ {
		if err := c.dead.gather(c.list, number); err != nil {
			return err
		}
		if s.block(number<<blockBits) != nil {
			s.change(number<<blockBits, c.dead.bury)
		}
	}
	return nil
}

// deaths are those of one block: a few single ones, which is what most blocks
// have, and marks for all others.
type deaths struct {
	few    []uint16
	marks  blockBitmap
	marked bool
}

const fewDeaths = 64

// gather takes what the changes kill in a block. It is empty before.
func (d *deaths) gather(changes []change, number uint64) error {
	first := number << blockBits
	end := first + blockSeqs - 1
	for i := range changes {
		c := &changes[i]
		for c.next.First <= end {
			if c.next.First < first {
				return fmt.Errorf("%w: alive-set: seq %d dies where none is alive", ErrCorrupt, c.next.First)
			}
			d.add(uint16(c.next.First), uint16(min(c.next.Last, end)))
			if c.next.Last > end {
				c.next.First = end + 1
				break
			}
			if err := c.read(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *deaths) add(first, last uint16) {
	if first == last && len(d.few) < fewDeaths {
		d.few = append(d.few, first)
		return
	}
	d.marked = true
	for w, mask := range words(first, last) {
		d.marks[w] |= mask
	}
}

// bury takes the deaths out of their block, and forgets them.
func (d *deaths) bury(b *aliveBlock) {
	if len(d.few) > 0 {
		slices.Sort(d.few)
		b.removeSorted(d.few)
		d.few = d.few[:0]
	}
	if d.marked {
		b.removeBits(&d.marks)
		clear(d.marks[:])
		d.marked = false
	}
}
