package name

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/carillonmq/carillon/storage/codec"
)

// A Chunk is one that a ChunkBuilder wrote: a view into the value. It never changes.
type Chunk struct {
	Ordinal     uint32
	From, Until Key // the keys that it answers for, Until excluded

	count   int
	prefix  int
	widths  [5]int // of hash, seq, due, expires, mark
	width   int    // of a row
	least   [3]uint64
	targets [][]byte
	rows    []byte
}

// OpenChunk checks the checksum, the key and the lengths of a value. The error wraps
// codec.ErrCorrupt.
func OpenChunk(key, value []byte) (Chunk, error) {
	if len(value) < chunkHeader {
		return Chunk{}, fmt.Errorf("%w: chunk of rows has %d bytes, one has at least %d", codec.ErrCorrupt, len(value), chunkHeader)
	}
	if want, got := binary.BigEndian.Uint32(value), codec.Checksum(value[4:]); want != got {
		return Chunk{}, fmt.Errorf("%w: chunk of rows has checksum %08x, its content %08x", codec.ErrCorrupt, want, got)
	}
	c := Chunk{
		Ordinal: binary.BigEndian.Uint32(value[4:]),
		From:    Key(value[12:]),
		Until:   Key(value[12+keySize:]),
		count:   int(binary.BigEndian.Uint32(value[8:])),
	}
	if !bytes.Equal(key, c.From[:]) {
		return Chunk{}, fmt.Errorf("%w: chunk of rows from %x lies under key %x", codec.ErrCorrupt, c.From, key)
	}
	d := codec.NewDecoder(value[12+2*keySize:])
	c.readShape(&d)
	if d.Failed() || c.count == 0 || len(c.rows) != c.count*c.width || c.From.Compare(c.Until) >= 0 {
		return Chunk{}, fmt.Errorf("%w: chunk of %d rows does not decode", codec.ErrCorrupt, c.count)
	}
	return c, nil
}

func (c *Chunk) readShape(d *codec.Decoder) {
	c.prefix = int(d.Byte())
	if c.prefix > len(Hash{}) {
		d.Fail("prefix longer than a hash")
		return
	}
	c.widths[0] = len(Hash{}) - c.prefix
	for i := 1; i < len(c.widths); i++ {
		if c.widths[i] = int(d.Byte()); c.widths[i] > 8 {
			d.Fail("number of more than 64 bits")
		}
	}
	for _, width := range c.widths {
		c.width += width
	}
	for i := range c.least {
		if least := d.View(8); least != nil {
			c.least[i] = binary.BigEndian.Uint64(least)
		}
	}
	c.targets = make([][]byte, d.Count())
	for i := range c.targets {
		if c.targets[i] = d.BytesView(); c.targets[i] == nil {
			d.Fail("target is null")
		}
	}
	c.rows = d.View(uint64(d.Left()))
}

// Len returns how many rows there are.
func (c *Chunk) Len() int { return c.count }

// RowSize returns how many bytes a row takes.
func (c *Chunk) RowSize() int64 { return int64(c.width) }

// Row returns the row at a place. The error wraps codec.ErrCorrupt.
func (c *Chunk) Row(at int) (Row, error) {
	row := c.rows[at*c.width:]
	r := Row{Hash: Hash(c.From[:len(Hash{})])}
	copy(r.Hash[c.prefix:], row)
	row = row[c.widths[0]:]
	var numbers [4]uint64
	for i, width := range c.widths[1:] {
		numbers[i] = number(row[:width])
		row = row[width:]
	}
	seq, due, expires, mark := numbers[0], numbers[1], numbers[2], numbers[3]
	place := mark >> markBits
	if place >= uint64(len(c.targets)) {
		return Row{}, fmt.Errorf("%w: row %d of %x names target %d of %d", codec.ErrCorrupt, at, c.From, place, len(c.targets))
	}
	r.Seq, r.Due, r.Target = c.least[0]+seq, int64(c.least[1]+due), string(c.targets[place])
	r.Foreign = mark&foreignMark != 0
	if mark&expiresMark != 0 {
		r.Expires = int64(c.least[2] + expires)
	}
	if r.Seq == 0 || r.Seq == math.MaxUint64 {
		return Row{}, fmt.Errorf("%w: row %d of %x is of seq %d", codec.ErrCorrupt, at, c.From, r.Seq)
	}
	return r, nil
}

func number(b []byte) (v uint64) {
	for _, digit := range b {
		v = v<<8 | uint64(digit)
	}
	return v
}

// Search returns the place of the first row that is not before k, Len if there is none.
func (c *Chunk) Search(k Key) int {
	h, seq := k.hash(), k.seq()
	if order := bytes.Compare(h[:c.prefix], c.From[:c.prefix]); order < 0 {
		return 0
	} else if order > 0 {
		return c.count
	}
	return sort.Search(c.count, func(at int) bool {
		row := c.rows[at*c.width:]
		order := bytes.Compare(row[:c.widths[0]], h[c.prefix:])
		return order > 0 || order == 0 && c.least[0]+number(row[c.widths[0]:][:c.widths[1]]) <= seq
	})
}
