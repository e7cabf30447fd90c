package alive

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/carillonmq/carillon/storage/codec"
)

// A start waits for the set, so all processors read its file. Pieces go around:
//
//	idle -> read -> todo -> decode, by any of several -> done
//	         |                                            |
//	         +-> inOrder -> settle and put, one by one <--+  -> idle
//
// Deaths are gathered in order, so one goroutine takes them out of the blocks.
type loader struct {
	idle    chan *basePiece
	todo    chan *basePiece
	inOrder chan *basePiece
}

// A basePiece is read, then decoded.
type basePiece struct {
	at     int64 // where it begins in the file
	bytes  []byte
	blocks []numberedBlock
	err    error         // of what was done last; the last piece has the one that ended reading
	done   chan struct{} // holds one when decoded
}

type numberedBlock struct {
	number uint64
	block  *block
}

// piecesAround bounds the memory for what is not in the set yet, 64 KB each.
const piecesAround = 16

// decodeFile reads a base of size bytes and the changes that follow it, and returns
// the seq after the last that a change was told of, 0 when there is none. Memory does
// not hold the base beside the set, a few pieces at a time.
func decodeFile(base io.Reader, size int64, after []byte) (set *Set, next uint64, err error) {
	c, next, err := openChanges(after, size)
	if err != nil {
		return nil, 0, err
	}
	l := loader{make(chan *basePiece, piecesAround), make(chan *basePiece, piecesAround), make(chan *basePiece, piecesAround)}
	for range piecesAround {
		l.idle <- &basePiece{done: make(chan struct{}, 1)}
	}
	go l.read(base, size)
	for range runtime.GOMAXPROCS(0) {
		go l.decode()
	}
	set = NewSet()
	if err := l.settle(set, c); err != nil {
		return nil, 0, err
	}
	return set, next, c.finish(set)
}

// read sends all pieces on, the last one with the error that ends it.
func (l *loader) read(from io.Reader, size int64) {
	defer close(l.inOrder)
	defer close(l.todo)
	// Of this size it serves the lengths; what is larger is read to its place.
	r := bufio.NewReaderSize(io.LimitReader(from, size), 1<<10)
	for at := int64(0); ; {
		length, err := r.Peek(4)
		if err == io.EOF && len(length) == 0 {
			return
		}
		p := <-l.idle
		p.at, p.blocks = at, p.blocks[:0]
		if p.err = err; err == nil {
			p.err = p.read(r, length)
		}
		if p.err != nil {
			p.err = codec.DamageAt("", at, "base of the alive-set: %w", p.err)
		}
		at += int64(len(p.bytes))
		failed := p.err != nil
		l.todo <- p
		l.inOrder <- p
		if failed {
			return
		}
	}
}

// read reads the piece of this length.
func (p *basePiece) read(r io.Reader, length []byte) error {
	n := 4 + uint64(binary.BigEndian.Uint32(length))
	if n > 4*pieceSize {
		return fmt.Errorf("a piece of %d bytes", n)
	}
	p.bytes = slices.Grow(p.bytes[:0], int(n))[:n]
	_, err := io.ReadFull(r, p.bytes)
	return err
}

// decode decodes pieces until there are no more.
func (l *loader) decode() {
	for p := range l.todo {
		if p.err == nil {
			p.err = p.decode()
		}
		p.done <- struct{}{}
	}
}

func (p *basePiece) decode() error {
	payload, _, err := nextPiece("base of the alive-set", newestBasePiece, p.bytes)
	if err != nil {
		return &codec.Damage{Offset: p.at, Err: err}
	}
	d := codec.NewDecoder(payload)
	for d.Left() > 0 {
		b := numberedBlock{d.Uvarint(), readBlock(&d)}
		if d.Failed() {
			return codec.DamageAt("", p.at, "alive-set: block %d does not decode", b.number)
		}
		p.blocks = append(p.blocks, b)
	}
	return nil
}

// settle puts all blocks into the set, without those seqs that have died since.
func (l *loader) settle(set *Set, c *changes) (err error) {
	last := int64(-1)
	for p := range l.inOrder { // to the end, also after an error: nobody waits for a piece then
		<-p.done
		if err == nil {
			err = p.err
		}
		for _, b := range p.blocks { // of a damaged piece, those before the damage
			if err == nil && (b.number > maxSeq>>blockBits || int64(b.number) <= last) {
				err = codec.DamageAt("", p.at, "alive-set: block %d after %d", b.number, last)
			}
			if err == nil {
				err = c.settle(b.number, b.block)
			}
			if err == nil && b.block.count > 0 {
				set.put(b.number, b.block)
			}
			last = int64(b.number)
		}
		l.idle <- p
	}
	return err
}

func readBlock(d *codec.Decoder) *block {
	n := d.Uvarint() + 1
	switch b := (&block{count: uint32(n)}); {
	case n == 0 || n > blockSeqs:
		d.Fail("block out of its bounds")
		return nil
	case n == blockSeqs:
		return b
	case n > maxLow:
		b.bits = readBits(d, int(n))
		return b
	default:
		b.low = readLow(d, int(n))
		return b
	}
}

func readBits(d *codec.Decoder, n int) *bitmap {
	words := d.View(blockSeqs / 8)
	if words == nil {
		return nil
	}
	set := new(bitmap)
	for w := range set {
		set[w] = binary.LittleEndian.Uint64(words[8*w:])
	}
	if set.count() != n {
		d.Fail("bits differ in number")
	}
	return set
}

func readLow(d *codec.Decoder, n int) []uint16 {
	view := d.View(2 * uint64(n))
	if view == nil {
		return nil
	}
	low := make([]uint16, 0, n)
	last, sorted := -1, true
	for ; len(view) >= 8; view = view[8:] { // four at a time, there are many
		word := binary.LittleEndian.Uint64(view)
		a, b, c, e := uint16(word), uint16(word>>16), uint16(word>>32), uint16(word>>48)
		sorted = sorted && last < int(a) && a < b && b < c && c < e
		low = append(low, a, b, c, e)
		last = int(e)
	}
	for ; len(view) > 0; view = view[2:] {
		a := binary.LittleEndian.Uint16(view)
		sorted = sorted && last < int(a)
		low = append(low, a)
		last = int(a)
	}
	if !sorted {
		d.Fail("members out of order")
		return nil
	}
	return low
}
