package alive

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/carillonmq/carillon/storage/codec"
)

// EncodeChange returns the piece that takes a set from its state of then, when before
// was the next seq, to the one of now, when after is. Both are frozen, now from what
// then went on as.
func EncodeChange(then, now *Set, before, after uint64) []byte {
	c := changeWriter{b: binary.AppendUvarint(binary.AppendUvarint(nil, before), after)}
	for at, was := range then.root {
		var is *node
		if at < len(now.root) {
			is = now.root[at]
		}
		if was != is { // what is shared has not changed
			c.node(uint64(at)*nodeBlocks, was, is)
		}
	}
	seq := before
	for alive := range now.Within(before, after-1) {
		c.run(seq, alive)
		seq = alive + 1
	}
	c.run(seq, after)
	c.finish()
	return appendPiece(nil, codec.Record{Version: 1, Payload: c.b})
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
func (c *changeWriter) node(first uint64, was, is *node) {
	if is == nil {
		is = new(node)
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
			now = new(block)
		}
		c.block((first+uint64(i))<<blockBits, b, now)
	}
}

func (c *changeWriter) block(first uint64, was, now *block) {
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
	runs          codec.Decoder
	end           uint64 // of the run read last
	next          run    // the run at hand; first is math.MaxUint64 at the end
}

func openChange(payload []byte, last uint64) (change, error) {
	c := change{runs: codec.NewDecoder(payload)}
	c.before, c.after = c.runs.Uvarint(), c.runs.Uvarint()
	if c.runs.Failed() || c.before > c.after || c.after > maxSeq || last != 0 && c.before != last {
		return c, fmt.Errorf("%w: alive-set: change from seq %d to %d after one to %d", codec.ErrCorrupt, c.before, c.after, last)
	}
	return c, c.read()
}

// read takes the next run.
func (c *change) read() error {
	if c.runs.Left() == 0 {
		c.next = run{math.MaxUint64, math.MaxUint64}
		return nil
	}
	gap, length := c.runs.Uvarint(), uint64(1)
	if gap&1 == 1 {
		length = c.runs.Uvarint() + 2
	}
	first := c.end + gap>>1
	if c.runs.Failed() || gap>>1 > maxSeq || length > maxSeq || first+length > c.after {
		return fmt.Errorf("%w: alive-set: change to seq %d does not decode", codec.ErrCorrupt, c.after)
	}
	c.next, c.end = run{first, first + length - 1}, first+length
	return nil
}

// changes are those of one file, read side by side: a seq is born once and dies once,
// so their order does not matter. Deaths are gathered block by block, in order, for each
// change kills all over the set.
type changes struct {
	list []change
	born run // all that were; of none first is above last
	dead deaths
}

// openChanges begins to read change pieces, the whole of b, which lies at an offset in
// the file, and returns the next seq after them, 0 when there are none.
func openChanges(b []byte, at int64) (c *changes, next uint64, err error) {
	c = &changes{born: run{1, 0}}
	for len(b) > 0 {
		payload, rest, err := nextPiece("change of the alive-set", newestChangePiece, b)
		if err != nil {
			return nil, 0, &codec.Damage{Offset: at, Err: err}
		}
		opened, err := openChange(payload, next)
		if err != nil {
			return nil, 0, &codec.Damage{Offset: at, Err: err}
		}
		at += int64(len(b) - len(rest))
		c.list = append(c.list, opened)
		next, b = opened.after, rest
	}
	if len(c.list) > 0 {
		c.born = run{c.list[0].before, next - 1}
	}
	return c, next, nil
}

// settle takes what is dead out of a block of the base, unless some of it was born since.
func (c *changes) settle(number uint64, b *block) error {
	if number >= c.born.first>>blockBits {
		return nil
	}
	if err := c.dead.gather(c.list, number); err != nil {
		return err
	}
	c.dead.bury(b)
	return nil
}

// finish adds what was born since the base, and takes out what died of it.
func (c *changes) finish(s *Set) error {
	s.AddRange(c.born.first, c.born.last)
	for number := c.born.first >> blockBits; number <= max(c.born.first, c.born.last)>>blockBits; number++ {
		if err := c.dead.gather(c.list, number); err != nil {
			return err
		}
		if s.block(number<<blockBits) != nil {
			s.change(number<<blockBits, c.dead.bury)
		}
	}
	return nil
}

// deaths are those of one block.
type deaths struct {
	marks  bitmap
	marked bool
}

// gather takes what the changes kill in a block. It is empty before.
func (d *deaths) gather(changes []change, number uint64) error {
	first := number << blockBits
	end := first + blockSeqs - 1
	for i := range changes {
		c := &changes[i]
		for c.next.first <= end {
			if c.next.first < first {
				return fmt.Errorf("%w: alive-set: seq %d dies where none is alive", codec.ErrCorrupt, c.next.first)
			}
			d.add(uint16(c.next.first), uint16(min(c.next.last, end)))
			if c.next.last > end {
				c.next.first = end + 1
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
	d.marked = true
	if first == last { // as nearly all are
		d.marks[first/64] |= 1 << (first % 64)
		return
	}
	for w, mask := range words(first, last) {
		d.marks[w] |= mask
	}
}

// bury takes the deaths out of their block, and forgets them.
func (d *deaths) bury(b *block) {
	if !d.marked {
		return
	}
	b.removeBits(&d.marks)
	clear(d.marks[:])
	d.marked = false
}
