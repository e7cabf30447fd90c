package outcomes

import (
	"slices"
	"strings"

	"github.com/carillonmq/carillon/storage/name"
)

// A Set is the outcomes that are known, oldest end first. They are rows in a run of pages
//
//	first                                                        next
//	  |                                                            |
//	[ forgotten, row ... ][ row ... ][ row ... ][ row ..., not written yet ]
//	    row --------- older -----------> row       (of the same id)
//
// and a row is written once, when its message ends. Nothing is ever written to one that is
// there: so what is frozen shares the pages with what goes on, and a Set is frozen by copying
// the list of them. Rows have no pointers, and 64 bytes. It belongs to one goroutine; while
// nothing is added or forgotten, any may read.
type Set struct {
	run
	newest  index             // the newest row of each id
	targets map[string]uint16 // of the last page: where they are in it
}

// A run is rows that follow each other. They are counted from the first that ever was, alike on
// all nodes.
type run struct {
	keep        Keep
	since       int64 // what ended at or after it is known, epoch milliseconds; 0: nothing was forgotten
	first, next uint64
	pages       []page // from the one that holds, or will hold, first
}

// pageRows is how many rows a page has. The last page is what a flush writes again.
const pageRows = 1 << 10

type page struct {
	rows    *[pageRows]row
	targets []string // of its rows: names are free text, and go with the page
}

type row struct {
	name      name.Hash
	seq       uint64
	more      uint64 // Replaced and Answered: By; of what has a place: Offset
	due, at   int64
	older     uint32 // how many rows back the one before of this id is, 0: none
	higher    uint32 // how many rows back the nearest of this id with a higher seq is, 0: none
	partition int32
	target    uint16 // of the page's
	kind      Kind
}

// NewSet returns an empty one, which keeps DefaultKeep.
func NewSet() *Set { return &Set{run: run{keep: DefaultKeep}, targets: make(map[string]uint16)} }

// Count returns how many outcomes are known.
func (r *run) Count() uint64 { return r.next - r.first }

// Since returns the time from which on all that has ended is known, epoch milliseconds; 0 when
// nothing was ever forgotten, or lacked.
func (r *run) Since() int64 { return r.since }

// Keep returns how long outcomes are known.
func (r *run) Keep() Keep { return r.keep }

func (r *run) page(at uint64) *page { return &r.pages[at/pageRows-r.first/pageRows] }

func (r *run) row(at uint64) *row { return &r.page(at).rows[at%pageRows] }

// back returns the row that a link of the one at leads to, false when it is forgotten or there
// is none.
func (r *run) back(at uint64, link uint32) (uint64, bool) {
	return at - uint64(link), link > 0 && uint64(link) <= at-r.first
}

func (r *run) outcome(at uint64) Outcome {
	p := r.page(at)
	w := &p.rows[at%pageRows]
	o := Outcome{Name: w.name, Kind: w.kind, Seq: w.seq, Due: w.due, At: w.at, Target: p.targets[w.target], Partition: w.partition}
	if w.kind.hasPlace() {
		o.Offset = int64(w.more)
	} else {
		o.By = w.more
	}
	return o
}

// Add puts an outcome behind all others. What of it goes with another kind is left out.
func (s *Set) Add(o Outcome) {
	if s.next/pageRows-s.first/pageRows == uint64(len(s.pages)) {
		s.pages = append(s.pages, page{rows: new([pageRows]row)})
		clear(s.targets)
	}
	w := s.row(s.next)
	*w = row{name: o.Name, seq: o.Seq, due: o.Due, at: o.At, kind: o.Kind, target: s.intern(o.Target)}
	switch {
	case o.Kind.hasPlace():
		w.partition, w.more = o.Partition, uint64(o.Offset)
	case o.Kind == Replaced:
		w.more = o.By
	case o.Kind == Answered:
		w.partition, w.more = o.Partition, o.By
	}
	if before, ok := s.find(o.Name); ok {
		w.older = uint32(s.next - before)
		for ok && s.row(before).seq <= o.Seq {
			before, ok = s.back(before, s.row(before).higher)
		}
		if ok {
			w.higher = uint32(s.next - before)
		}
	}
	s.put(o.Name, s.next)
	s.next++
}

// intern returns where the last page has the name of a target. It copies a name that is new.
func (s *Set) intern(target string) uint16 {
	at, ok := s.targets[target]
	if !ok {
		p := &s.pages[len(s.pages)-1]
		target, at = strings.Clone(target), uint16(len(p.targets))
		s.targets[target], p.targets = at, append(p.targets, target)
	}
	return at
}

// SetKeep changes how long outcomes are known. Forget goes by it.
func (s *Set) SetKeep(k Keep) {
	s.keep = Keep{For: max(k.For, 0), Count: min(k.Count, MaxCount)}
}

// Forget gives up the oldest outcomes beyond the bounds, most of them at most, so that whoever
// waits does not wait long. now is the time by which they are old, epoch milliseconds. They go
// in the order in which they came: one whose time lies ahead holds up those behind it, until
// they are too many.
func (s *Set) Forget(now int64, most int) {
	for ; most > 0 && s.first < s.next; most-- {
		w := s.row(s.first)
		if s.Count() <= s.keep.Count && w.at >= now-s.keep.For {
			return
		}
		s.since = max(s.since, w.at+1)
		s.drop(w.name, s.first)
		if s.first++; s.first%pageRows == 0 {
			s.pages[0] = page{}
			s.pages = s.pages[1:]
		}
	}
}

// Lack says that of what ended before the time, epoch milliseconds, some was never added.
func (s *Set) Lack(before int64) { s.since = max(s.since, before) }

// Newest returns what became of the newest message of an id, which is the one with the highest
// seq: one that was on its way may have ended after it. It passes over what was refused.
func (s *Set) Newest(id name.Hash) (Outcome, bool) {
	at, ok := s.find(id)
	if !ok {
		return Outcome{}, false
	}
	for higher, ok := at, true; ok; higher, ok = s.back(at, s.row(at).higher) {
		at = higher
	}
	return s.outcome(at), s.row(at).seq > 0
}

// Last returns what was added of a name last, whatever its seq.
func (s *Set) Last(id name.Hash) (Outcome, bool) {
	at, ok := s.find(id)
	if !ok {
		return Outcome{}, false
	}
	return s.outcome(at), true
}

// lifeMost bounds the answer of Life, and by that how long others wait for it.
const lifeMost = 1000

// Life returns all that is known of an id, in the order in which it happened; of more than a
// thousand outcomes the last thousand.
func (s *Set) Life(id name.Hash) (life []Outcome) {
	for at, ok := s.find(id); ok && len(life) < lifeMost; at, ok = s.back(at, s.row(at).older) {
		life = append(life, s.outcome(at))
	}
	slices.Reverse(life)
	return life
}
