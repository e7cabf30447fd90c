package alive

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"

	"github.com/carillonmq/carillon/storage/codec"
)

// Above LevelOne the alive-set has a file of its own: all of it as it once was,
// the base, and what each flush since has changed. Both are pieces:
//
//	piece   | length u32 | record of that length |
//	file    | base piece ... | change piece ... |
//
// A base piece holds blocks in order of their numbers, about pieceSize of them:
//
//	| n x (number uvarint, count - 1 uvarint, seqs) |
//
// where seqs are nothing in a block of 65,536, 8 KB of bits in one of more than
// 4,096, else | u16 | each, in order. Fixed numbers here are little endian, for
// they are read by the hundred million.
//
// A change piece takes the set on from one flush to the next:
//
//	| before uvarint | after uvarint | n x dead |
//
// before and after are the next seq then and now: all in between were born alive.
// dead are the runs that are so no longer, or were born and died, in order:
//
//	| gap * 2 + more uvarint | length - 2 uvarint, if more |
//
// with gap counted from the end of the run before, and more telling a run from a
// single seq. So a kill at random among 10^10 seqs takes three bytes, and one of
// a million in a row takes six.
//
// Where the base ends, and where the file does, is in the manifest's head. What
// lies beyond is of a flush that was not named; the next one writes over it.
const pieceSize = 64 << 10

// The versions of pieces.
const (
	newestBasePiece   = 1
	newestChangePiece = 1
)

// File is what whoever names it keeps of it:
//
//	| id uvarint | base uvarint | size uvarint | flushed uvarint | count uvarint | next uvarint |
type File struct {
	ID      uint64 // 0: the set is in the manifest, as LevelOne has it
	Base    int64  // bytes of the base
	Size    int64  // bytes of base and changes
	Flushed int64  // bytes of segments written since the base was
	Count   uint64 // seqs in the set
	Next    uint64 // seq after the last that the set was told of
}

// Append writes f into a record.
func (f *File) Append(b []byte) []byte {
	for _, v := range []uint64{f.ID, uint64(f.Base), uint64(f.Size), uint64(f.Flushed), f.Count, f.Next} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// ReadFile reads what Append wrote.
func ReadFile(d *codec.Decoder) File {
	f := File{ID: d.Uvarint(), Base: int64(d.Uvarint()), Size: int64(d.Uvarint()), Flushed: int64(d.Uvarint()), Count: d.Uvarint(), Next: d.Uvarint()}
	if f.ID == 0 || f.Base < 0 || f.Size < f.Base || f.Next > maxSeq {
		d.Fail("file out of its bounds")
	}
	return f
}

// pieceFrame is how many bytes of a piece are not payload: length, version, checksum.
const pieceFrame = 4 + 1 + 4

// appendPiece frames a payload.
func appendPiece(b []byte, r codec.Record) []byte {
	sealed := codec.Seal(r)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(sealed))), sealed...)
}

// nextPiece cuts the first piece off b.
func nextPiece(name string, newest byte, b []byte) (payload, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, fmt.Errorf("%w: %s of %d bytes is cut off", codec.ErrCorrupt, name, len(b))
	}
	end := 4 + binary.BigEndian.Uint32(b)
	r, err := codec.Open(name, newest, b[4:end])
	return r.Payload, b[end:], err
}

// basePieces yields the set as pieces; each is good until the next.
func (s *Set) basePieces() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var payload, piece []byte
		for number, b := range s.all() {
			payload = b.append(binary.AppendUvarint(payload, number))
			if len(payload) < pieceSize {
				continue
			}
			if piece = appendPiece(piece[:0], codec.Record{Version: 1, Payload: payload}); !yield(piece) {
				return
			}
			payload = payload[:0]
		}
		if len(payload) > 0 {
			yield(appendPiece(piece[:0], codec.Record{Version: 1, Payload: payload}))
		}
	}
}

// Append writes a set that is part of a record. Equal sets are written alike:
//
//	| n uvarint | n x (number uvarint, count - 1 uvarint, seqs) |
//
// with blocks as a base piece has them.
func (s *Set) Append(to []byte) []byte {
	n := uint64(0)
	for range s.all() {
		n++
	}
	to = binary.AppendUvarint(to, n)
	for number, b := range s.all() {
		to = b.append(binary.AppendUvarint(to, number))
	}
	return to
}

// Read reads what Append wrote. It fails the decoder where that is not what it wrote.
func Read(d *codec.Decoder) *Set {
	s, last := NewSet(), int64(-1)
	for range d.CountOf(leastBlock) {
		number, b := d.Uvarint(), readBlock(d)
		if number > maxSeq>>blockBits || int64(number) <= last {
			d.Fail("block out of its order")
		}
		if d.Failed() {
			return NewSet()
		}
		s.put(number, b)
		last = int64(number)
	}
	return s
}

// leastBlock is how many bytes a block takes at least, with its number.
const leastBlock = 2

// BaseSize returns how many bytes basePieces yields.
func (s *Set) BaseSize() (size int64) {
	payload := int64(0)
	for number, b := range s.all() {
		payload += uvarintSize(number) + b.size()
		if payload >= pieceSize {
			size, payload = size+pieceFrame+payload, 0
		}
	}
	if payload > 0 {
		size += pieceFrame + payload
	}
	return size
}

func (b *block) size() int64 {
	size := uvarintSize(uint64(b.count - 1))
	switch {
	case b.count == blockSeqs:
		return size
	case b.bits != nil:
		return size + blockSeqs/8
	default:
		return size + 2*int64(b.count)
	}
}

func uvarintSize(v uint64) (n int64) {
	for n = 1; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func (b *block) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(b.count-1))
	if b.bits != nil {
		for _, word := range b.bits {
			to = binary.LittleEndian.AppendUint64(to, word)
		}
	}
	for _, low := range b.low {
		to = binary.LittleEndian.AppendUint16(to, low)
	}
	return to
}

// A Reader reads a base out of a frozen set, piece by piece. It must be closed.
type Reader struct {
	Size int64 // of all of it
	next func() ([]byte, bool)
	stop func()
	left []byte
}

// NewReader reads what a file of the set would begin with.
func NewReader(set *Set) *Reader {
	r := &Reader{Size: set.BaseSize()}
	r.next, r.stop = iter.Pull(set.basePieces())
	return r
}

func (r *Reader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		piece, ok := r.next()
		if !ok {
			return 0, io.EOF
		}
		r.left = piece
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *Reader) Close() { r.stop() }
