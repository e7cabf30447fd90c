// Package pause has what users have paused: delay topics and target topics, and who did it,
// why and since when. What a pause does to claims is told by package storage, which holds
// the Set among the replicated values.
package pause

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/codec"
)

// A Kind says what is paused.
type Kind uint8

// The kinds. They are written to disk and into the log.
const (
	Topic  Kind = 1 + iota // a delay topic: all messages that came by it, whatever their target
	Target                 // a target topic: all messages that go to it
)

// String returns the kind's name, as users write it.
func (k Kind) String() string {
	switch k {
	case Topic:
		return "topic"
	case Target:
		return "target"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Known reports whether there is such a kind.
func (k Kind) Known() bool { return k == Topic || k == Target }

// A Pause is one thing that a user has paused.
type Pause struct {
	Kind     Kind
	Name     string // of the delay topic or target topic
	Who, Why string // in words of the user's
	Since    int64  // the leader's time of then, epoch milliseconds
}

func (p *Pause) compare(kind Kind, name string) int {
	return cmp.Or(cmp.Compare(p.Kind, kind), cmp.Compare(p.Name, name))
}

// A Set is some pauses, one of a kind and name at most. It never changes, so copies share it.
// The zero value is empty.
type Set struct {
	sorted []Pause // by kind and name
}

func (s Set) find(kind Kind, name string) (int, bool) {
	return slices.BinarySearchFunc(s.sorted, kind, func(p Pause, kind Kind) int { return p.compare(kind, name) })
}

// Has reports whether that is paused.
func (s Set) Has(kind Kind, name string) bool {
	_, found := s.find(kind, name)
	return found
}

// With returns the set with p as well, in place of the one of its kind and name.
func (s Set) With(p Pause) Set {
	at, found := s.find(p.Kind, p.Name)
	sorted := slices.Clone(s.sorted)
	if found {
		sorted[at] = p
		return Set{sorted}
	}
	return Set{slices.Insert(sorted, at, p)}
}

// Without returns the set without the pause of that kind and name.
func (s Set) Without(kind Kind, name string) Set {
	at, found := s.find(kind, name)
	if !found {
		return s
	}
	return Set{slices.Delete(slices.Clone(s.sorted), at, at+1)}
}

// All returns the pauses sorted by kind and name. The slice is the set's own.
func (s Set) All() []Pause { return s.sorted }

// Of returns the pauses of a kind, sorted by name. The slice is the set's own.
func (s Set) Of(kind Kind) []Pause {
	first, _ := s.find(kind, "")
	end, _ := s.find(kind+1, "")
	return s.sorted[first:end]
}

// Append writes the set:
//
//	| n uvarint | n x (kind u8, name, who, why, since varint) |
func (s Set) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.sorted)))
	for _, p := range s.sorted {
		b = codec.AppendString(append(b, byte(p.Kind)), p.Name)
		b = codec.AppendString(codec.AppendString(b, p.Who), p.Why)
		b = binary.AppendVarint(b, p.Since)
	}
	return b
}

// Read reads what Append wrote. It fails the decoder where that is not what it wrote.
func Read(d *codec.Decoder) Set {
	var s Set
	for range d.CountOf(5) {
		p := Pause{Kind: Kind(d.Byte()), Name: d.Text(), Who: d.Text(), Why: d.Text(), Since: d.Varint()}
		if n := len(s.sorted); !p.Kind.Known() || n > 0 && s.sorted[n-1].compare(p.Kind, p.Name) >= 0 {
			d.Fail("pause out of its order")
		}
		s.sorted = append(s.sorted, p)
	}
	return s
}
