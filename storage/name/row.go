package name

import (
	"bytes"
	"encoding/binary"
)

// A Row says which message a name stands for.
type Row struct {
	Hash    Hash
	Seq     uint64
	Due     int64 // epoch milliseconds
	Expires int64 // epoch milliseconds; 0: never
	Target  string
	// Foreign is set where the entry of the message tells neither its id nor its topic: it was
	// accepted before the ids were open.
	Foreign bool
}

// A Key is the place of a row: rows of one name lie together, the newest first.
//
//	| hash 16 | seq inverted u64 |
type Key [keySize]byte

const keySize = 24

func keyOf(h Hash, seq uint64) (k Key) {
	copy(k[:], h[:])
	binary.BigEndian.PutUint64(k[len(h):], ^seq)
	return k
}

// Key returns the row's place.
func (r *Row) Key() Key { return keyOf(r.Hash, r.Seq) }

func (k *Key) hash() Hash  { return Hash(k[:len(Hash{})]) }
func (k *Key) seq() uint64 { return ^binary.BigEndian.Uint64(k[len(Hash{}):]) }

// From returns the place at which the rows of the name with a seq of upTo, or below, begin.
func (h Hash) From(upTo uint64) Key { return keyOf(h, upTo) }

// Compare orders keys.
func (k Key) Compare(other Key) int { return bytes.Compare(k[:], other[:]) }

// End lies behind every row, for seqs begin at 1.
var End = Key(bytes.Repeat([]byte{0xff}, keySize))
