// Package replayed has which dead letters were scheduled anew, so that none is by mistake a second
// time. Package storage holds the Set among the replicated values.
package replayed

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"maps"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/tidwall/btree"
)

// A Partition is one of a topic, by the id that Kafka gave it: a topic that is made anew under its
// name counts its offsets anew.
type Partition struct {
	TopicID [16]byte
	Number  int32
}

func (p Partition) compare(q Partition) int {
	return cmp.Or(bytes.Compare(p.TopicID[:], q.TopicID[:]), cmp.Compare(p.Number, q.Number))
}

// A run is offsets of a partition, first and last among them.
type run struct {
	at          Partition
	first, last int64
}

func (r run) before(s run) bool {
	return cmp.Or(r.at.compare(s.at), cmp.Compare(r.first, s.first)) < 0
}

// mostRuns bounds a set: beyond it the lowest marks of the partition that has the most runs are forgotten for
// new ones, so one in which little was replayed keeps its marks whatever is done to another, or was to one of a
// topic that is gone. Runs that touch are one, so only what lies scattered comes to this many, at 40 bytes of
// memory.
const mostRuns = 100_000

// A Set is marks of dead letters, as runs of offsets. It must be made by New or Read. One goroutine
// at a time may use it; a clone is another's.
type Set struct {
	runs  *btree.BTreeG[run]
	count map[Partition]int // runs of each that has any
}

// New returns an empty Set.
func New() Set {
	return Set{btree.NewBTreeGOptions(run.before, btree.Options{NoLocks: true}), make(map[Partition]int)}
}

// Clone returns a copy, which shares the runs that neither changes. It counts as writing to s.
func (s Set) Clone() Set { return Set{s.runs.Copy(), maps.Clone(s.count)} }

// Has reports whether the dead letter at the offset is marked.
func (s Set) Has(at Partition, offset int64) bool {
	r, found := s.upTo(at, offset)
	return found && offset <= r.last
}

// upTo returns the last run of the partition that begins at the offset or below.
func (s Set) upTo(at Partition, offset int64) (r run, found bool) {
	s.runs.Descend(run{at: at, first: offset}, func(below run) bool {
		r, found = below, below.at == at
		return false
	})
	return r, found
}

// from yields the runs of the partition in order, as they are when it begins. Nothing may be changed
// before it ends.
func (s Set) from(at Partition) iter.Seq[run] {
	return func(yield func(run) bool) {
		s.runs.Ascend(run{at: at}, func(r run) bool { return r.at == at && yield(r) })
	}
}

// Add marks the dead letter at the offset, and forgets marks of its partition below first, the first
// offset that Kafka still has. Offsets are 0 and above.
func (s Set) Add(at Partition, offset, first int64) {
	s.trim(at, first)
	added := run{at, offset, offset}
	if below, found := s.upTo(at, offset); found && below.last >= offset {
		return
	} else if found && below.last == offset-1 {
		added.first = below.first
		s.drop(below)
	}
	if above, found := s.runs.Get(run{at: at, first: offset + 1}); found {
		added.last = above.last
		s.drop(above)
	}
	s.put(added)
	if s.runs.Len() > mostRuns {
		s.forgetOne(added)
	}
}

// forgetOne forgets the lowest run of the partition that has the most of them, of several such the first, and never
// what was added, which is about to be scheduled on its word.
func (s Set) forgetOne(added run) {
	var fullest Partition
	most := 0
	for at, n := range s.count {
		if at == added.at {
			n-- // what was added does not count
		}
		if n > most || n == most && n > 0 && at.compare(fullest) < 0 {
			fullest, most = at, n
		}
	}
	for lowest := range s.from(fullest) {
		if lowest != added {
			s.drop(lowest)
			return
		}
	}
}

func (s Set) put(r run) {
	if _, replaced := s.runs.Set(r); !replaced {
		s.count[r.at]++
	}
}

func (s Set) drop(r run) {
	if _, was := s.runs.Delete(r); !was {
		return
	}
	if s.count[r.at]--; s.count[r.at] == 0 {
		delete(s.count, r.at)
	}
}

func (s Set) trim(at Partition, first int64) {
	var gone []run
	for r := range s.from(at) {
		if r.first >= first {
			break
		}
		gone = append(gone, r)
	}
	for _, r := range gone {
		s.drop(r)
		if r.last >= first {
			s.put(run{at, first, r.last})
		}
	}
}

// Append writes the set:
//
//	| n | n x (topic id 16, partition varint, | n | n x (gap from the last run's end, length - 1)) |
//
// where numbers without a form are uvarints, and the gap before a first run is its first offset.
func (s Set) Append(b []byte) []byte {
	type group struct {
		at   Partition
		runs []run
	}
	var groups []group
	s.runs.Scan(func(r run) bool {
		if n := len(groups); n == 0 || groups[n-1].at != r.at {
			groups = append(groups, group{at: r.at})
		}
		last := &groups[len(groups)-1]
		last.runs = append(last.runs, r)
		return true
	})
	b = binary.AppendUvarint(b, uint64(len(groups)))
	for _, g := range groups {
		b = binary.AppendVarint(append(b, g.at.TopicID[:]...), int64(g.at.Number))
		b = binary.AppendUvarint(b, uint64(len(g.runs)))
		end := int64(0)
		for _, r := range g.runs {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.first-end)), uint64(r.last-r.first))
			end = r.last
		}
	}
	return b
}

// Read reads what Append wrote. It fails the decoder where that is not what it wrote.
func Read(d *codec.Decoder) Set {
	s := New()
	var before Partition
	for i := range d.CountOf(20) {
		at := Partition{TopicID: d.ID(), Number: int32(d.Varint())}
		if i > 0 && before.compare(at) >= 0 {
			d.Fail("partition out of its order")
		}
		before = at
		s.read(at, d)
	}
	return s
}

func (s Set) read(at Partition, d *codec.Decoder) {
	n, end := d.CountOf(2), int64(0)
	if n == 0 {
		d.Fail("partition without a mark")
	}
	for i := range n {
		r := run{at: at, first: end + int64(d.Uvarint())}
		r.last = r.first + int64(d.Uvarint())
		if r.first < 0 || i > 0 && r.first <= end+1 || r.last < r.first {
			d.Fail("run out of its order")
			return
		}
		s.put(r)
		end = r.last
	}
}
