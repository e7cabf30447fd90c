package outcomes

import (
	"strings"
	"sync"

	"github.com/carillonmq/carillon/storage/name"
)

// A list is the outcomes of one class that are known, oldest first. They are rows in a run of pages
//
//	first                                                        next
//	  |                                                            |
//	[ forgotten, row ... ][ row ... ][ row ... ][ row ..., not written yet ]
//	    row --------- older -----------> row       (of the same id)
//
// and a row is written once, when its message ends. Nothing is ever written to one that is
// there: so what is frozen shares the pages with what goes on, and a Set is frozen by copying
// the list of them. Rows have no pointers, and 64 bytes.
type list struct {
	run
	newest  index // the newest row of each id
	tops    tops
	targets map[string]uint16 // of the last page: where they are in it
}

// A run is rows that follow each other. They are counted from the first that ever was, alike on
// all nodes.
type run struct {
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
	seq       uint64 // of what was refused: the row of the ends that came next, by which Life has them in order
	more      uint64 // Replaced and Answered: By; of what has a place: Offset
	due, at   int64
	older     uint32 // how many rows back the one before of this id is, 0: none
	higher    uint32 // how many rows back the nearest of this id with a higher seq is, 0: none
	partition int32
	target    uint16 // of the page's
	kind      Kind
}

// count returns how many outcomes are known.
func (r *run) count() uint64 { return r.next - r.first }

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
	o := Outcome{Name: w.name, Kind: w.kind, Due: w.due, At: w.at, Target: p.targets[w.target], Partition: w.partition}
	if w.kind.class() != refusals {
		o.Seq = w.seq
	}
	if w.kind.hasPlace() {
		o.Offset = int64(w.more)
	} else {
		o.By = w.more
	}
	return o
}

// add puts an outcome behind all others. What of it goes with another kind is left out.
func (l *list) add(o Outcome) {
	if l.next/pageRows-l.first/pageRows == uint64(len(l.pages)) {
		l.pages = append(l.pages, page{rows: new([pageRows]row)})
		clear(l.targets)
	}
	w := l.row(l.next)
	*w = row{name: o.Name, seq: o.Seq, due: o.Due, at: o.At, kind: o.Kind, target: l.intern(o.Target)}
	switch {
	case o.Kind.hasPlace():
		w.partition, w.more = o.Partition, uint64(o.Offset)
	case o.Kind == Replaced:
		w.more = o.By
	case o.Kind == Answered:
		w.partition, w.more = o.Partition, o.By
	}
	if before, ok := l.find(o.Name); ok {
		w.older = uint32(l.next - before)
		for ok && l.row(before).seq <= o.Seq {
			before, ok = l.back(before, l.row(before).higher)
		}
		if ok {
			w.higher = uint32(l.next - before)
		}
	}
	l.tops.outdate(l, &o)
	l.put(o.Name, l.next)
	l.next++
}

// intern returns where the last page has the name of a target. It copies a name that is new.
func (l *list) intern(target string) uint16 {
	at, ok := l.targets[target]
	if !ok {
		p := &l.pages[len(l.pages)-1]
		target, at = strings.Clone(target), uint16(len(p.targets))
		l.targets[target], p.targets = at, append(p.targets, target)
	}
	return at
}

// forget gives up the oldest outcomes that ended before the time, epoch milliseconds, or are more than count,
// most of them at most. They go in the order in which they came: one whose time lies ahead holds up those behind
// it, until they are too many.
func (l *list) forget(before int64, count uint64, most int) {
	for ; most > 0 && l.first < l.next; most-- {
		w := l.row(l.first)
		if l.count() <= count && w.at >= before {
			return
		}
		l.since = max(l.since, w.at+1)
		l.drop(w.name, l.first)
		if l.first++; l.first%pageRows == 0 {
			l.pages[0] = page{}
			l.pages = l.pages[1:]
		}
	}
}

// highest returns the row of the newest message of an id, which is the one with the highest seq.
func (l *list) highest(id name.Hash) (at uint64, ok bool) {
	if at, ok = l.tops.get(id); ok && at >= l.first {
		return at, true
	}
	at, ok = l.find(id)
	steps := 0
	for higher, is := at, ok; is; higher, is = l.back(at, l.row(at).higher) {
		at = higher
		steps++
	}
	if steps > fewSteps {
		l.tops.put(id, at)
	}
	return at, ok
}

const (
	fewSteps = 16
	// mostTops bounds for how many ids the highest row is kept.
	mostTops = 4096
)

// tops are the highest rows of ids to which it is a long way: that of a constant for messages that were accepted in
// one order and ended in the other has a step for each. They may have been forgotten by now. Those who read beside each other
// may use it.
type tops struct {
	mu   sync.Mutex
	rows map[name.Hash]uint64
}

func (t *tops) get(id name.Hash) (at uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok = t.rows[id]
	return at, ok
}

func (t *tops) put(id name.Hash, at uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) >= mostTops {
		clear(t.rows)
	}
	if t.rows == nil {
		t.rows = make(map[name.Hash]uint64)
	}
	t.rows[id] = at
}

// outdate lets go of a row above which the outcome comes, which is about to be added.
func (t *tops) outdate(l *list, o *Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.rows[o.Name]; ok && (at < l.first || l.row(at).seq <= o.Seq) {
		delete(t.rows, o.Name)
	}
}
