package outcomes

import (
	"encoding/binary"
	"hash"
	"iter"
	"slices"

	"github.com/carillonmq/carillon/storage/codec"
)

// Frozen is a Set as it was at one moment. It never changes, and needs no lock.
type Frozen struct{ run }

// Freeze returns the set as it is now. It costs 32 bytes for each thousand outcomes.
func (s *Set) Freeze() *Frozen {
	frozen := &Frozen{s.run}
	frozen.pages = slices.Clone(s.pages)
	return frozen
}

// Thaw returns a set that begins as this frozen one. It has a last page of its own, for others
// may have gone on in the same one, and costs a look at all ids.
func (f *Frozen) Thaw() *Set {
	s := &Set{run: f.run, targets: make(map[string]uint16)}
	s.pages = slices.Clone(f.pages)
	if last := len(s.pages) - 1; last >= 0 {
		p := &s.pages[last]
		rows := *p.rows
		p.rows, p.targets = &rows, slices.Clone(p.targets)
		for at, target := range p.targets {
			s.targets[target] = uint16(at)
		}
	}
	s.newest.expect(s.Count())
	for at := s.first; at < s.next; at++ {
		s.put(s.row(at).name, at)
	}
	return s
}

// All yields the outcomes, oldest end first.
func (f *Frozen) All() iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		for at := f.first; at < f.next; at++ {
			if !yield(f.outcome(at)) {
				return
			}
		}
	}
}

// Sum adds all to a hash, in a form that is of no other use. It is equal for sets that answer
// alike now and later.
func (f *Frozen) Sum(h hash.Hash) {
	b := f.appendHead(nil)
	for o := range f.All() {
		b = append(append(b, o.Name[:]...), byte(o.Kind))
		for _, number := range []uint64{o.Seq, o.By, uint64(o.Due), uint64(o.At), uint64(o.Partition), uint64(o.Offset)} {
			b = binary.BigEndian.AppendUint64(b, number)
		}
		h.Write(codec.AppendString(b, o.Target))
		b = b[:0]
	}
	h.Write(b)
}
