package segment

import (
	"cmp"
	"encoding/binary"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/name"
)

// Ref names one message and its place in the order of delivery.
type Ref struct {
	Due int64  // epoch milliseconds
	Seq uint64 // 1 and up; 0 sorts before every message due at Due
}

// Compare orders by due time, ties by order of acceptance.
func (r Ref) Compare(other Ref) int {
	if c := cmp.Compare(r.Due, other.Due); c != 0 {
		return c
	}
	return cmp.Compare(r.Seq, other.Seq)
}

// Less reports whether r is delivered before other.
func (r Ref) Less(other Ref) bool { return r.Compare(other) < 0 }

// Min returns which of the two is delivered first.
func (r Ref) Min(other Ref) Ref {
	if other.Less(r) {
		return other
	}
	return r
}

// AppendRef writes | due varint | seq uvarint |.
func AppendRef(b []byte, r Ref) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, r.Due), r.Seq)
}

// ReadRef reads what AppendRef wrote.
func ReadRef(d *codec.Decoder) Ref { return Ref{Due: d.Varint(), Seq: d.Uvarint()} }

// Entry is one message of the schedule.
type Entry struct {
	Due    int64  // epoch milliseconds
	Seq    uint64 // given when it is accepted
	Target string // target topic, kept outside Body so that a scan can filter by it
	// Topic, ID and Expires are those of LevelThree; of what was accepted before the ids were open they are zero.
	Topic   string    // the delay topic that the message belongs to, which scopes its id
	ID      string    // chosen by the user; "" for none
	Name    name.Hash // of Topic and ID, once somebody has worked it out; else zero. It lies in no file
	Expires int64     // epoch milliseconds from which it is not delivered any more; 0: never
	Body    []byte    // opaque; nil and empty stay apart; never modified once handed in
}

// Hash returns what Name is, or will be.
func (e *Entry) Hash() name.Hash {
	if e.Name != (name.Hash{}) {
		return e.Name
	}
	return name.Of(e.Topic, e.ID)
}

// Ref returns the entry's name.
func (e *Entry) Ref() Ref { return Ref{Due: e.Due, Seq: e.Seq} }
