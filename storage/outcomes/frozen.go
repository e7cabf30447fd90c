package outcomes

import (
	"encoding/binary"
	"hash"
	"iter"
	"slices"

	"github.com/carillonmq/carillon/storage/codec"
)

// Frozen is a Set as it was at one moment. It never changes, and needs no lock.
type Frozen struct {
	keep Keep
	runs [classes]run
}

// Freeze returns the set as it is now. It costs 32 bytes for each thousand outcomes.
func (s *Set) Freeze() *Frozen {
	frozen := &Frozen{keep: s.keep}
	for c := range s.lists {
		frozen.runs[c] = s.lists[c].run
		frozen.runs[c].pages = slices.Clone(s.lists[c].pages)
	}
	return frozen
}

// Thaw returns a set that begins as this frozen one. It has last pages of its own, for others
// may have gone on in the same ones, and costs a look at all ids.
func (f *Frozen) Thaw() *Set {
	s := NewSet()
	s.keep = f.keep
	for c := range f.runs {
		s.lists[c].thaw(f.runs[c])
	}
	return s
}

func (l *list) thaw(r run) {
	l.run = r
	l.pages = slices.Clone(r.pages)
	if last := len(l.pages) - 1; last >= 0 {
		p := &l.pages[last]
		rows := *p.rows
		p.rows, p.targets = &rows, slices.Clone(p.targets)
		for at, target := range p.targets {
			l.targets[target] = uint16(at)
		}
	}
	l.newest.expect(l.count())
	for at := l.first; at < l.next; at++ {
		l.put(l.row(at).name, at)
	}
}

// Count returns how many outcomes there are, of all classes.
func (f *Frozen) Count() (n uint64) {
	for c := range f.runs {
		n += f.runs[c].count()
	}
	return n
}

// Since returns what it did of the set.
func (f *Frozen) Since() int64 { return f.runs[ends].since }

// All yields the outcomes, class by class, oldest first.
func (f *Frozen) All() iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		for c := range f.runs {
			r := &f.runs[c]
			for at := r.first; at < r.next; at++ {
				if !yield(r.outcome(at)) {
					return
				}
			}
		}
	}
}

// Sum adds all to a hash, in a form that is of no other use. It is equal for sets that answer
// alike now and later.
func (f *Frozen) Sum(h hash.Hash) {
	b := f.Head().Payload
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
