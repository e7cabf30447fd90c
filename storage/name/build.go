package name

import (
	"encoding/binary"

	"github.com/carillonmq/carillon/storage/codec"
)

// A chunk is up to chunkSize bytes of rows in the order of their keys: one value of a
// segment's bucket, under the key of its first row. The rows of a chunk are of one width, so
// that one is found by halving.
//
//	| crc u32 | ordinal u32 | count u32 | from 24 | until 24 |
//	| prefix u8 | widths of seq, due, expires, mark: 4 x u8 | least seq, due, expires: 3 x u64 |
//	| n uvarint | n x target name | count x row |
//
//	crc      CRC-32C of all after it
//	ordinal  0 for the segment's first chunk, then counting
//	from     the key of the first row
//	until    the key of the first row of the next chunk, End behind the last one: a chunk
//	         answers for all keys between the two, so one that damage hides is missed
//	row      | hash without its prefix | seq | due | expires | mark |
//
// Numbers are big endian, in as many bytes as their width says. The first prefix bytes of every
// hash are those of from; seq, due and expires say by how much they exceed the least; mark is
// the place of the target in the list, shifted by two, with a bit for each of a foreign row (1)
// and one that expires (2).
const (
	// Two chunks with their elements fill four pages of 4 KB: a leaf of bbolt has at least two.
	chunkSize   = (4*4096-16)/2 - 16 - keySize
	chunkHeader = 12 + 2*keySize + 5 + 3*8

	foreignMark = 1
	expiresMark = 2
	markBits    = 2
)

// A ChunkBuilder gathers rows, which come in order. The zero value is empty.
type ChunkBuilder struct {
	rows              []Row
	seq, due, expires bounds
	targets           []string
	places            map[string]uint64
	targetBytes       int
}

// bounds are the least and the greatest of some numbers.
type bounds struct {
	least, most int64
	some        bool
}

func (b bounds) with(v int64) bounds {
	if !b.some {
		return bounds{v, v, true}
	}
	return bounds{min(b.least, v), max(b.most, v), true}
}

// width is how many bytes the differences to the least take. They wrap, as two's complements do.
func (b bounds) width() int { return widthOf(uint64(b.most) - uint64(b.least)) }

func widthOf(v uint64) (n int) {
	for ; v > 0; v >>= 8 {
		n++
	}
	return n
}

// Len returns how many rows were added since Finish.
func (b *ChunkBuilder) Len() int { return len(b.rows) }

// Add takes the next row, false when the chunk must be finished first.
func (b *ChunkBuilder) Add(r *Row) bool {
	seq, due, expires := b.seq.with(int64(r.Seq)), b.due.with(r.Due), b.expires
	if r.Expires != 0 {
		expires = expires.with(r.Expires)
	}
	targets, targetBytes := len(b.targets), b.targetBytes
	_, known := b.places[r.Target]
	if !known {
		targets++
		targetBytes += codec.BytesSize([]byte(r.Target))
	}
	if len(b.rows) > 0 {
		width := len(r.Hash) - commonPrefix(&b.rows[0].Hash, &r.Hash) + seq.width() + due.width() + expires.width() + markWidth(targets)
		if chunkHeader+codec.UvarintSize(uint64(targets))+targetBytes+(len(b.rows)+1)*width > chunkSize {
			return false
		}
	}
	if !known {
		if b.places == nil {
			b.places = make(map[string]uint64)
		}
		b.places[r.Target] = uint64(len(b.targets))
		b.targets = append(b.targets, r.Target)
	}
	b.rows = append(b.rows, *r)
	b.seq, b.due, b.expires, b.targetBytes = seq, due, expires, targetBytes
	return true
}

func markWidth(targets int) int { return widthOf(uint64(targets)<<markBits - 1) }

func commonPrefix(a, b *Hash) (n int) {
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}

// Finish writes the chunk over buf and empties the builder. until is the key of the first row
// that comes after, or End. The key is a part of the value.
func (b *ChunkBuilder) Finish(ordinal uint32, until Key, buf []byte) (key, value []byte) {
	from := b.rows[0].Key()
	prefix := commonPrefix(&b.rows[0].Hash, &b.rows[len(b.rows)-1].Hash)
	seqWidth, dueWidth, expiresWidth, marks := b.seq.width(), b.due.width(), b.expires.width(), markWidth(len(b.targets))
	value = binary.BigEndian.AppendUint32(append(buf[:0], 0, 0, 0, 0), ordinal)
	value = binary.BigEndian.AppendUint32(value, uint32(len(b.rows)))
	value = append(append(value, from[:]...), until[:]...)
	value = append(value, byte(prefix), byte(seqWidth), byte(dueWidth), byte(expiresWidth), byte(marks))
	for _, least := range []int64{b.seq.least, b.due.least, b.expires.least} {
		value = binary.BigEndian.AppendUint64(value, uint64(least))
	}
	value = binary.AppendUvarint(value, uint64(len(b.targets)))
	for _, target := range b.targets {
		value = codec.AppendString(value, target)
	}
	for i := range b.rows {
		r := &b.rows[i]
		mark, expires := b.places[r.Target]<<markBits, uint64(0)
		if r.Foreign {
			mark |= foreignMark
		}
		if r.Expires != 0 {
			mark |= expiresMark
			expires = uint64(r.Expires) - uint64(b.expires.least)
		}
		value = append(value, r.Hash[prefix:]...)
		value = appendNumber(value, r.Seq-uint64(b.seq.least), seqWidth)
		value = appendNumber(value, uint64(r.Due)-uint64(b.due.least), dueWidth)
		value = appendNumber(value, expires, expiresWidth)
		value = appendNumber(value, mark, marks)
	}
	binary.BigEndian.PutUint32(value, codec.Checksum(value[4:]))
	clear(b.rows)
	clear(b.targets)
	clear(b.places)
	*b = ChunkBuilder{rows: b.rows[:0], targets: b.targets[:0], places: b.places}
	return value[12 : 12+keySize], value
}

func appendNumber(b []byte, v uint64, width int) []byte {
	for at := width - 1; at >= 0; at-- {
		b = append(b, byte(v>>(8*at)))
	}
	return b
}
