package segment

import (
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
const (
	chunkSize   = 64 << 10
	chunkHeader = 16
	keySize     = 16
)

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
	first, last Ref
	count       uint32
	targets     []string
	targetID    map[string]uint64
	entries     []byte
	bodies      [][]byte
	bodyBytes   int
}

func (c *chunkBuilder) add(e *Entry) {
	if c.count == 0 {
		c.first, c.last = e.Ref(), e.Ref()
		c.targetID = make(map[string]uint64)
	}
	target, ok := c.targetID[e.Target]
	if !ok {
		target = uint64(len(c.targets))
		c.targets = append(c.targets, e.Target)
		c.targetID[e.Target] = target
	}
	c.entries = binary.AppendUvarint(c.entries, uint64(e.Due)-uint64(c.last.Due))
	c.entries = binary.AppendVarint(c.entries, int64(e.Seq-c.last.Seq))
	c.entries = binary.AppendUvarint(c.entries, target)
	length := uint64(0)
	if e.Body != nil {
		length = uint64(len(e.Body)) + 1
	}
	c.entries = binary.AppendUvarint(c.entries, length)
	c.entries = binary.BigEndian.AppendUint32(c.entries, codec.Checksum(e.Body))
	c.bodies = append(c.bodies, e.Body)
	c.bodyBytes += len(e.Body)
	c.last = e.Ref()
	c.count++
}

func (c *chunkBuilder) full() bool { return len(c.entries)+c.bodyBytes >= chunkSize }

// finish writes the chunk over buf and empties the builder. The key is a part of
// the value.
func (c *chunkBuilder) finish(ordinal uint32, buf []byte) (key, value []byte) {
	names := binary.AppendUvarint(nil, uint64(len(c.targets)))
	for _, t := range c.targets {
		names = codec.AppendString(names, t)
	}
	index := keySize + len(names) + len(c.entries)
	value = slices.Grow(buf[:0], chunkHeader+index+c.bodyBytes)[:chunkHeader]
	binary.BigEndian.PutUint32(value[4:], uint32(index))
	binary.BigEndian.PutUint32(value[8:], c.count)
	binary.BigEndian.PutUint32(value[12:], ordinal)
	value = AppendKey(value, c.first)
	value = append(value, names...)
	value = append(value, c.entries...)
	binary.BigEndian.PutUint32(value, codec.Checksum(value[4:]))
	for _, body := range c.bodies {
		value = append(value, body...)
	}
	clear(c.bodies)
	*c = chunkBuilder{targets: c.targets[:0], entries: c.entries[:0], bodies: c.bodies[:0]}
	return value[chunkHeader : chunkHeader+keySize], value
}

// chunk reads one, front to back. Entries' bodies are views into the value.
type chunk struct {
	ordinal uint32
	left    uint32 // entries not read yet
	prev    Ref
	started bool
	targets int      // how many names there are
	names   []string // of the targets
	index   codec.Decoder
	bodies  []byte
}

// chunkEntry is an entry with the checksum that its body should have.
type chunkEntry struct {
	Entry
	crc uint32
}

// openChunk checks the header, the index's checksum and the key.
func openChunk(key, value []byte) (chunk, error) {
	if len(key) != keySize || len(value) < chunkHeader+keySize {
		return chunk{}, fmt.Errorf("%w: chunk of %d bytes under a key of %d", codec.ErrCorrupt, len(value), len(key))
	}
	index := uint64(binary.BigEndian.Uint32(value[4:]))
	if index < keySize || index > uint64(len(value)-chunkHeader) {
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
		ordinal: binary.BigEndian.Uint32(value[12:]),
		left:    binary.BigEndian.Uint32(value[8:]),
		prev:    parseKey(key),
		index:   codec.NewDecoder(value[chunkHeader+keySize : end]),
		bodies:  value[end:],
	}
	c.targets = c.index.Count()
	c.names = make([]string, c.targets)
	for i := range c.names {
		c.names[i] = c.index.Text()
	}
	if c.index.Failed() || c.left == 0 {
		return chunk{}, fmt.Errorf("%w: chunk with %d entries and %d targets does not decode", codec.ErrCorrupt, c.left, c.targets)
	}
	return c, nil
}

// next returns the next entry, false at the end. The body is not checked.
func (c *chunk) next() (chunkEntry, bool, error) {
	e, target, ok, err := c.step()
	if ok {
		e.Target = c.names[target]
	}
	return e, ok, err
}

// step is next, with the place of the target's name instead of the name.
func (c *chunk) step() (e chunkEntry, target uint64, ok bool, err error) {
	if c.left == 0 {
		if c.index.Left() > 0 || len(c.bodies) > 0 {
			return chunkEntry{}, 0, false, fmt.Errorf("%w: chunk has %d and %d bytes after its last entry", codec.ErrCorrupt, c.index.Left(), len(c.bodies))
		}
		return chunkEntry{}, 0, false, nil
	}
	due, seq := c.index.Uvarint(), c.index.Varint()
	target, length := c.index.Uvarint(), c.index.Uvarint()
	e.crc = c.index.Uint32()
	r := Ref{Due: int64(uint64(c.prev.Due) + due), Seq: c.prev.Seq + uint64(seq)}
	if c.index.Failed() || target >= uint64(c.targets) || length > math.MaxInt32 || length > uint64(len(c.bodies))+1 {
		return chunkEntry{}, 0, false, fmt.Errorf("%w: entry after %v does not decode", codec.ErrCorrupt, c.prev)
	}
	if c.started && !c.prev.Less(r) || !c.started && r != c.prev {
		return chunkEntry{}, 0, false, fmt.Errorf("%w: entry %v after %v", codec.ErrCorrupt, r, c.prev)
	}
	e.Due, e.Seq = r.Due, r.Seq
	if length > 0 {
		e.Body = c.bodies[: length-1 : length-1]
		c.bodies = c.bodies[length-1:]
	}
	c.left, c.prev, c.started = c.left-1, r, true
	return e, target, true, nil
}

// verify checks the body against its checksum.
func (e *chunkEntry) verify() error {
	if got := codec.Checksum(e.Body); got != e.crc {
		return fmt.Errorf("%w: body of entry %v has checksum %08x, written with %08x", codec.ErrCorrupt, e.Ref(), got, e.crc)
	}
	return nil
}
