package pause

import (
	"encoding/binary"
	"math"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/tidwall/btree"
)

// Of names messages by the delay topic that they came by and by their target. Where one is empty
// it is that of any: a pause of a delay topic is Of{Topic: name}, one of a target is Of{Target: name}.
type Of struct{ Topic, Target string }

// That returns what a pause of the kind and name is of.
func That(kind Kind, name string) Of {
	if kind == Topic {
		return Of{Topic: name}
	}
	return Of{Target: name}
}

// With returns what is of both, where of names one of them alone, and name is that of the other.
func (of Of) With(name string) Of {
	if of.Topic == "" {
		of.Topic = name
	} else {
		of.Target = name
	}
	return of
}

// A Bound says which messages can be claimed, whatever else releases them: those that are due by
// Through and have a seq below Before.
type Bound struct {
	Through int64 // epoch milliseconds
	Before  uint64
}

// Unbound holds nothing back.
var Unbound = Bound{Through: math.MaxInt64, Before: math.MaxUint64}

// Stops reports whether a message that is due at that time and has that seq cannot be claimed.
func (b Bound) Stops(due int64, seq uint64) bool { return due > b.Through || seq >= b.Before }

// Min is what both bounds let through.
func (b Bound) Min(other Bound) Bound {
	return Bound{min(b.Through, other.Through), min(b.Before, other.Before)}
}

// Bounds are what pauses hold back of messages that other holds release. Package storage says when one
// is set and when it is taken out. The zero value has none, and costs nothing to ask.
type Bounds struct{ tree *btree.BTreeG[bounded] }

type bounded struct {
	of Of
	Bound
}

func (b *bounded) less(other *bounded) bool {
	if b.of.Topic != other.of.Topic {
		return b.of.Topic < other.of.Topic
	}
	return b.of.Target < other.of.Target
}

// Clone returns a copy that is its own. It marks both as shared, so it counts as writing to b.
func (b Bounds) Clone() Bounds {
	if b.tree == nil {
		return b
	}
	return Bounds{b.tree.Copy()}
}

// Get returns the bound of exactly that, Unbound if there is none.
func (b Bounds) Get(of Of) Bound {
	if b.tree == nil {
		return Unbound
	}
	if at, ok := b.tree.Get(bounded{of: of}); ok {
		return at.Bound
	}
	return Unbound
}

// Covers returns what bounds messages that came by the topic for the target: all that names either
// or both.
func (b Bounds) Covers(topic, target string) Bound {
	if b.tree == nil {
		return Unbound
	}
	return b.Get(Of{Topic: topic}).Min(b.Get(Of{Target: target})).Min(b.Get(Of{topic, target}))
}

// Topics returns the delay topics that a bound names, alone or with a target, sorted.
func (b Bounds) Topics() (all []string) {
	if b.tree == nil {
		return nil
	}
	for last, more := "", true; more; {
		more = false
		b.tree.Ascend(bounded{of: Of{Topic: last + "\x00"}}, func(at bounded) bool { // the next after last
			last, more = at.of.Topic, true
			all = append(all, last)
			return false
		})
	}
	return all
}

// Len returns how many there are.
func (b Bounds) Len() int {
	if b.tree == nil {
		return 0
	}
	return b.tree.Len()
}

// Set puts a bound in the place of the present one of that. Unbound takes it out.
func (b *Bounds) Set(of Of, to Bound) {
	switch {
	case to != Unbound:
		if b.tree == nil {
			b.tree = btree.NewBTreeGOptions(func(a, b bounded) bool { return a.less(&b) }, btree.Options{NoLocks: true})
		}
		b.tree.Set(bounded{of, to})
	case b.tree != nil:
		if b.tree.Delete(bounded{of: of}); b.tree.Len() == 0 {
			b.tree = nil
		}
	}
}

// Lower bounds that to what the present bound and the new one let through.
func (b *Bounds) Lower(of Of, to Bound) { b.Set(of, to.Min(b.Get(of))) }

// Targets returns the targets that bounds name together with the delay topic, sorted.
func (b Bounds) Targets(topic string) (all []string) {
	if b.tree == nil {
		return nil
	}
	b.tree.Ascend(bounded{of: Of{Topic: topic, Target: "\x00"}}, func(at bounded) bool {
		if at.of.Topic != topic {
			return false
		}
		all = append(all, at.of.Target)
		return true
	})
	return all
}

func (b Bounds) each(yield func(bounded) bool) {
	if b.tree != nil {
		b.tree.Scan(yield)
	}
}

// Append writes the bounds, nothing if there are none:
//
//	| n uvarint | n x (topic, target, through varint, before uvarint) |
func (b Bounds) Append(to []byte) []byte {
	if b.tree == nil {
		return to
	}
	to = binary.AppendUvarint(to, uint64(b.tree.Len()))
	for at := range b.each {
		to = codec.AppendString(codec.AppendString(to, at.of.Topic), at.of.Target)
		to = binary.AppendUvarint(binary.AppendVarint(to, at.Through), at.Before)
	}
	return to
}

// ReadBounds reads what Append wrote, which ends what is decoded. It fails the decoder where that is not
// what it wrote.
func ReadBounds(d *codec.Decoder) (b Bounds) {
	if d.Left() == 0 {
		return b
	}
	var last bounded
	n := d.CountOf(4)
	if n == 0 {
		d.Fail("no bounds, where there are some")
	}
	for i := range n {
		at := bounded{Of{d.Text(), d.Text()}, Bound{d.Varint(), d.Uvarint()}}
		if i > 0 && !last.less(&at) {
			d.Fail("bound out of its order")
		}
		b.Lower(at.of, at.Bound)
		last = at
	}
	return b
}
