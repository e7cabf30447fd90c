package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/carillonmq/carillon/storage/codec"
)

// A chunk is about 64 KB of entries in (due, seq) order: one value of a
// segment's bucket, under the key of its first entry. The index comes first, so
// that a scan never touches bodies.
//
//	0        4          8         12          16
//	| crc u32| index u32| count u32| ordinal u32| index ... | bodies ... |
//
//	crc      CRC-32C of all from offset 4 to the end of the index
//	index    its length in bytes
//	ordinal  0 for the segment's first chunk, then counting: bbolt pages carry
//	         no checksum, and a damaged one can hide a chunk from a cursor
//
// Index:
//
//	| first entry's key 16 | n uvarint | n x target name | count x entry |
//
// Entry: due and seq as differences to the entry before (0 for the first), the
// target by its place in the list, the body's length + 1 (0 is nil), and the
// body's CRC-32C:
//
//	| due uvarint | seq varint | target uvarint | length uvarint | crc u32 |
//
// Bodies lie back to back in the same order and end with the value.
//
// In a segment WithIDs an entry is told by its label instead of its target: what it shares with
// many others. Only an entry that has an id, or expires, takes more bytes than another one:
//
//	| first entry's key 16 | n uvarint | n x label | count x entry |
//
//	label   | target | topic | has u8, 1: an id, 2: an expiry |
//	entry   | due uvarint | seq varint | label uvarint | length uvarint | crc u32 | id | expires - due varint |
const (
	chunkSize   = 64 << 10
	chunkHeader = 16
	keySize     = 16

	hasID      = 1
	hasExpires = 2

	// placeShift makes room for what an entry has below where in the value its label lies.
	placeShift = 2
)

// A Form says what entries have, and by that how a segment is written.
type Form uint8

const (
	// Plain entries have neither topic, id nor expiry: LevelOne and LevelTwo write them.
	Plain Form = iota
	// WithIDs they may have them, and rows say where each id is.
	WithIDs
)

// A label is what many entries of a chunk share. Of a Plain one only the target is written.
type label struct {
	target, topic string
	has           byte
}

func (e *Entry) label() label {
	l := label{target: e.Target, topic: e.Topic}
	if e.ID != "" {
		l.has |= hasID
	}
	if e.Expires != 0 {
		l.has |= hasExpires
	}
	return l
}

func (l *label) append(b []byte, form Form) []byte {
	b = codec.AppendString(b, l.target)
	if form == Plain {
		return b
	}
	return append(codec.AppendString(b, l.topic), l.has)
}

// readLabel reads one, its texts views.
func readLabel(d *codec.Decoder, form Form) (l label) {
	l.target = d.StringView()
	if form == Plain {
		return l
	}
	l.topic = d.StringView()
	if l.has = d.Byte(); l.has > hasID|hasExpires {
		d.Fail("unknown field of an entry")
	}
	return l
}

// AppendKey writes r so that byte order is the order of delivery: due with its
// sign bit turned, then seq, both big endian.
func AppendKey(b []byte, r Ref) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(r.Due)^1<<63)
	return binary.BigEndian.AppendUint64(b, r.Seq)
}

func parseKey(b []byte) Ref {
	return Ref{Due: int64(binary.BigEndian.Uint64(b) ^ 1<<63), Seq: binary.BigEndian.Uint64(b[8:])}
}

// chunkBuilder gathers entries, which must come in order. Bodies are not copied
// before finish.
type chunkBuilder struct {
	form        Form
	first, last Ref
	count       uint32
	labels      []label
	places      map[label]uint64
	lastPlace   uint64 // of the label that came last
	entries     []byte
	bodies      [][]byte
	bodyBytes   int
}

func (c *chunkBuilder) add(e *Entry) {
	if c.count == 0 {
		c.first, c.last = e.Ref(), e.Ref()
		c.places = make(map[label]uint64)
	}
	l := label{target: e.Target}
	if c.form == WithIDs {
		l = e.label()
	}
	place := c.place(&l)
	c.entries = binary.AppendUvarint(c.entries, uint64(e.Due)-uint64(c.last.Due))
	c.entries = binary.AppendVarint(c.entries, int64(e.Seq-c.last.Seq))
	c.entries = binary.AppendUvarint(c.entries, place)
	length := uint64(0)
	if e.Body != nil {
		length = uint64(len(e.Body)) + 1
	}
	c.entries = binary.AppendUvarint(c.entries, length)
	c.entries = binary.BigEndian.AppendUint32(c.entries, codec.Checksum(e.Body))
	if l.has&hasID != 0 {
		c.entries = codec.AppendString(c.entries, e.ID)
	}
	if l.has&hasExpires != 0 {
		c.entries = binary.AppendVarint(c.entries, int64(uint64(e.Expires)-uint64(e.Due)))
	}
	c.bodies = append(c.bodies, e.Body)
	c.bodyBytes += len(e.Body)
	c.last = e.Ref()
	c.count++
}

// place returns where the label is in the list.
func (c *chunkBuilder) place(l *label) uint64 {
	if len(c.labels) > 0 && c.labels[c.lastPlace] == *l { // of most chunks there is one
		return c.lastPlace
	}
	place, ok := c.places[*l]
	if !ok {
		place = uint64(len(c.labels))
		c.labels = append(c.labels, *l)
		c.places[*l] = place
	}
	c.lastPlace = place
	return place
}

func (c *chunkBuilder) full() bool { return len(c.entries)+c.bodyBytes >= chunkSize }

// finish writes the chunk over buf and empties the builder. The key is a part of
// the value.
func (c *chunkBuilder) finish(ordinal uint32, buf []byte) (key, value []byte) {
	labels := binary.AppendUvarint(nil, uint64(len(c.labels)))
	for i := range c.labels {
		labels = c.labels[i].append(labels, c.form)
	}
	index := keySize + len(labels) + len(c.entries)
	value = slices.Grow(buf[:0], chunkHeader+index+c.bodyBytes)[:chunkHeader]
	binary.BigEndian.PutUint32(value[4:], uint32(index))
	binary.BigEndian.PutUint32(value[8:], c.count)
	binary.BigEndian.PutUint32(value[12:], ordinal)
	value = AppendKey(value, c.first)
	value = append(value, labels...)
	value = append(value, c.entries...)
	binary.BigEndian.PutUint32(value, codec.Checksum(value[4:]))
	for _, body := range c.bodies {
		value = append(value, body...)
	}
	clear(c.bodies)
	*c = chunkBuilder{form: c.form, labels: c.labels[:0], entries: c.entries[:0], bodies: c.bodies[:0]}
	return value[chunkHeader : chunkHeader+keySize], value
}

// chunk reads one, front to back. Entries' ids and bodies are views into the value.
type chunk struct {
	form    Form
	ordinal uint32
	left    uint32 // entries not read yet
	prev    Ref
	started bool
	head    []byte   // header and index
	labels  []label  // once next was called: an index needs none
	before  []label  // what readLabels may write over: of a chunk that is not read any more
	places  []uint32 // of each label, where it lies in head and what it has
	index   codec.Decoder
	bodies  []byte
}

// chunkEntry is an entry with the checksum that its body should have.
type chunkEntry struct {
	Entry
	crc uint32
}

// openChunk checks the header, the index's checksum and the key.
func openChunk(form Form, key, value []byte) (chunk, error) {
	if len(key) != keySize || len(value) < chunkHeader+keySize {
		return chunk{}, fmt.Errorf("%w: chunk of %d bytes under a key of %d", codec.ErrCorrupt, len(value), len(key))
	}
	index := uint64(binary.BigEndian.Uint32(value[4:]))
	if index < keySize || index > uint64(len(value)-chunkHeader) || index >= math.MaxUint32>>placeShift-chunkHeader {
		return chunk{}, fmt.Errorf("%w: chunk of %d bytes says its index has %d", codec.ErrCorrupt, len(value), index)
	}
	end := chunkHeader + index
	if want, got := binary.BigEndian.Uint32(value), codec.Checksum(value[4:end]); want != got {
		return chunk{}, fmt.Errorf("%w: chunk has checksum %08x, its index %08x", codec.ErrCorrupt, want, got)
	}
	if string(value[chunkHeader:chunkHeader+keySize]) != string(key) {
		return chunk{}, fmt.Errorf("%w: chunk %v lies under key %v", codec.ErrCorrupt, parseKey(value[chunkHeader:]), parseKey(key))
	}
	c := chunk{
		form:    form,
		ordinal: binary.BigEndian.Uint32(value[12:]),
		left:    binary.BigEndian.Uint32(value[8:]),
		prev:    parseKey(key),
		head:    value[:end],
		index:   codec.NewDecoder(value[chunkHeader+keySize : end]),
		bodies:  value[end:],
	}
	c.places = make([]uint32, c.index.Count())
	for i := range c.places {
		at := end - uint64(c.index.Left())
		c.places[i] = uint32(at)<<placeShift | uint32(readLabel(&c.index, form).has)
	}
	if c.index.Failed() || c.left == 0 {
		return chunk{}, fmt.Errorf("%w: chunk with %d entries and %d targets does not decode", codec.ErrCorrupt, c.left, len(c.places))
	}
	return c, nil
}

// readLabels returns the labels, their texts parts of one copy of all: a chunk may have hundreds of them.
func (c *chunk) readLabels() []label {
	labels := slices.Grow(c.before[:0], len(c.places))
	if len(c.places) == 0 {
		return labels
	}
	d := codec.NewDecoder(bytes.Clone(c.head[c.places[0]>>placeShift : len(c.head)-c.index.Left()]))
	for range c.places {
		labels = append(labels, readLabel(&d, c.form))
	}
	return labels
}

// next reads the next entry into e, and returns false at the end. The body is not checked.
func (c *chunk) next(e *chunkEntry) (bool, error) {
	if c.labels == nil {
		c.labels = c.readLabels()
	}
	place, ok, err := c.step(e)
	if ok {
		e.Target, e.Topic = c.labels[place].target, c.labels[place].topic
	}
	return ok, err
}

// step is next, with the place of the label instead of its texts: those that e has are left as they are.
func (c *chunk) step(e *chunkEntry) (place uint64, ok bool, err error) {
	if c.left == 0 {
		if c.index.Left() > 0 || len(c.bodies) > 0 {
			return 0, false, fmt.Errorf("%w: chunk has %d and %d bytes after its last entry", codec.ErrCorrupt, c.index.Left(), len(c.bodies))
		}
		return 0, false, nil
	}
	due, seq := c.index.Uvarint(), c.index.Varint()
	place, length := c.index.Uvarint(), c.index.Uvarint()
	e.crc = c.index.Uint32()
	r := Ref{Due: int64(uint64(c.prev.Due) + due), Seq: c.prev.Seq + uint64(seq)}
	if c.index.Failed() || place >= uint64(len(c.places)) || length > math.MaxInt32 || length > uint64(len(c.bodies))+1 {
		return 0, false, fmt.Errorf("%w: entry after %v does not decode", codec.ErrCorrupt, c.prev)
	}
	e.ID, e.Expires, e.Body = "", 0, nil
	if has := byte(c.places[place]) & (hasID | hasExpires); has != 0 {
		e.readMore(&c.index, has, r.Due)
		if c.index.Failed() {
			return 0, false, fmt.Errorf("%w: id or expiry of the entry after %v does not decode", codec.ErrCorrupt, c.prev)
		}
	}
	if c.started && !c.prev.Less(r) || !c.started && r != c.prev {
		return 0, false, fmt.Errorf("%w: entry %v after %v", codec.ErrCorrupt, r, c.prev)
	}
	e.Due, e.Seq = r.Due, r.Seq
	if length > 0 {
		e.Body = c.bodies[: length-1 : length-1]
		c.bodies = c.bodies[length-1:]
	}
	c.left, c.prev, c.started = c.left-1, r, true
	return place, true, nil
}

// readMore reads what only some entries have. One that is there is not empty.
func (e *chunkEntry) readMore(d *codec.Decoder, has byte, due int64) {
	if has&hasID != 0 {
		n := d.Uvarint() // and one more, since none is null
		if n < 2 {
			d.Fail("id is empty")
			return
		}
		e.ID = d.TextView(n - 1)
	}
	if has&hasExpires != 0 {
		if e.Expires = int64(uint64(due) + uint64(d.Varint())); e.Expires == 0 {
			d.Fail("expiry is 0")
		}
	}
}

// verify checks the body against its checksum.
func (e *chunkEntry) verify() error {
	if got := codec.Checksum(e.Body); got != e.crc {
		return fmt.Errorf("%w: body of entry %v has checksum %08x, written with %08x", codec.ErrCorrupt, e.Ref(), got, e.crc)
	}
	return nil
}
