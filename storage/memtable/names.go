package memtable

import (
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/name"
)

// names says which messages the ids of a table stand for: the table's own entries, and
// foreign ones, which lie in segments from before LevelThree. The zero value is empty.
//
//	newest  hash -> row -> older row of the same name -> ...   (seqs fall)
//
// A message that dies stays in its chain until another one takes the name, or many were looked at in vain (SkipDead): then
// the dead at its head go. So a look-up that finds the head alive is one step, and killing costs nothing.
type names struct {
	rows    rowPages
	foreign []name.Row

	// newest is a hash table of half as many names as places, at most, a power of two: hashes are
	// as good as random, and no name ever leaves it. A name belongs where the first bits of its
	// hash say, or at the next place that is free. There is the upper half of its head, so that
	// most others are told from it without a look at its row, and the place of its newest row, and
	// one more; 0: free.
	newest []uint64
	count  int // of names
}

type named struct {
	hash    name.Hash
	seq     uint64
	older   uint32 // place in rows, and one more; 0: none
	foreign uint32 // place in foreign, and one more; 0: one of the table's own entries
}

// rowPages are rows in pages, so that none moves when there are more: a place, given with one more,
// is as good as a pointer.
type rowPages struct {
	pages []*[rowsOfPage]named
	count int
}

const rowsOfPage = 512

func (p *rowPages) at(row uint32) *named { return &p.pages[(row-1)/rowsOfPage][(row-1)%rowsOfPage] }

// add returns the place of the row, and one more.
func (p *rowPages) add(r named) uint32 {
	if p.count == len(p.pages)*rowsOfPage {
		p.pages = append(p.pages, new([rowsOfPage]named))
	}
	p.count++
	*p.at(uint32(p.count)) = r
	return uint32(p.count)
}

// all yields the rows in the order in which they came.
func (p *rowPages) all(yield func(*named) bool) {
	for i := range p.count {
		if !yield(p.at(uint32(i + 1))) {
			return
		}
	}
}

// leastNames is how many places newest has at first.
const leastNames = 64

// find returns the place in rows of the name's newest message, and one more; 0: none.
func (n *names) find(h *name.Hash) uint32 {
	if len(n.newest) == 0 {
		return 0
	}
	return uint32(n.newest[n.at(h)])
}

// at returns where the name is in newest, or belongs.
func (n *names) at(h *name.Hash) int {
	upper := h.Head() >> 32
	for at := n.home(upper); ; at = (at + 1) & (len(n.newest) - 1) {
		there := n.newest[at]
		if there == 0 || there>>32 == upper && n.rows.at(uint32(there)).hash == *h {
			return at
		}
	}
}

// home returns where a name with this upper half of its head belongs.
func (n *names) home(upper uint64) int { return int(upper * uint64(len(n.newest)) >> 32) }

// place returns where the name is in newest, or will be: there is room for it.
func (n *names) place(h *name.Hash) int {
	if 2*n.count >= len(n.newest) {
		n.grow()
	}
	return n.at(h)
}

// setNewest makes a row the newest of its name, whose place in newest is at.
func (n *names) setNewest(at int, r named) {
	if n.newest[at] == 0 {
		n.count++
	}
	n.newest[at] = r.hash.Head()>>32<<32 | uint64(n.rows.add(r))
}

func (n *names) grow() {
	before := n.newest
	n.newest = make([]uint64, max(leastNames, 2*len(before)))
	clear(n.newest) // it is read before it is written: the kernel would map each page twice, and stop all threads between
	for _, there := range before {
		if there == 0 {
			continue
		}
		at := n.home(there >> 32)
		for n.newest[at] != 0 {
			at = (at + 1) & (len(n.newest) - 1)
		}
		n.newest[at] = there
	}
}

// add takes the name of an entry that the table has been given last.
func (n *names) add(m *Table, h name.Hash, seq uint64) {
	at := n.place(&h)
	n.setNewest(at, named{hash: h, seq: seq, older: n.skipDead(m, uint32(n.newest[at]))})
}

// addForeign takes the name of a message that lies in a segment, where its seq belongs.
func (n *names) addForeign(r name.Row) {
	var newer uint32
	at := n.place(&r.Hash)
	older := uint32(n.newest[at])
	for ; older != 0 && n.rows.at(older).seq > r.Seq; older = n.rows.at(older).older {
		newer = older
	}
	if older != 0 && n.rows.at(older).seq == r.Seq {
		return
	}
	n.foreign = append(n.foreign, r)
	row := named{hash: r.Hash, seq: r.Seq, older: older, foreign: uint32(len(n.foreign))}
	if newer == 0 {
		n.setNewest(at, row)
	} else {
		n.rows.at(newer).older = n.rows.add(row)
	}
}

// forgetOwn follows the death of all entries of the table.
func (n *names) forgetOwn() {
	foreign := n.foreign
	*n = names{}
	for _, r := range foreign {
		n.addForeign(r)
	}
}

// absorb takes over the names of the table that follows this one.
func (n *names) absorb(m *Table, later *names) {
	for r := range later.rows.all {
		if r.foreign == 0 {
			n.add(m, r.hash, r.seq)
		} else {
			n.addForeign(later.foreign[r.foreign-1])
		}
	}
}

// AddForeign takes the row of a message that lies in a segment from before LevelThree.
func (m *Table) AddForeign(r name.Row) { m.names.addForeign(r) }

// Foreign returns the rows that AddForeign took. They must not be changed.
func (m *Table) Foreign() []name.Row { return m.names.foreign }

// StrikeKnown makes fresh[i] false where the table has, or had, a message with names[i]. That it had one may be
// forgotten.
func (m *Table) StrikeKnown(names []name.Hash, fresh []bool) {
	if m.names.count == 0 {
		return
	}
	for i := range names {
		if m.names.newest[m.names.at(&names[i])] != 0 {
			fresh[i] = false
		}
	}
}

// Find returns the newest message of the name that accept accepts, and how many were asked about.
func (m *Table) Find(h name.Hash, accept func(seq uint64) bool) (found name.Row, ok bool, asked int) {
	n := &m.names
	for at := n.find(&h); at != 0; at = n.rows.at(at).older {
		asked++
		if r := n.rows.at(at); accept(r.seq) {
			found, ok = m.row(r)
			return found, ok, asked
		}
	}
	return name.Row{}, false, asked
}

// SkipDead has the newest of the name followed by the next whose entry is in the table still, or lies in a segment.
func (m *Table) SkipDead(h name.Hash) {
	n := &m.names
	if at := n.find(&h); at != 0 {
		newest := n.rows.at(at)
		newest.older = n.skipDead(m, newest.older)
	}
}

// skipDead returns the first row at or behind at whose message may be alive, 0 if there is none.
func (n *names) skipDead(m *Table, at uint32) uint32 {
	for at != 0 && n.rows.at(at).foreign == 0 && !m.holds(n.rows.at(at).seq) {
		at = n.rows.at(at).older
	}
	return at
}

// row returns the row that a segment has for it, false when its entry has left the table.
func (m *Table) row(r *named) (name.Row, bool) {
	if r.foreign != 0 {
		return m.names.foreign[r.foreign-1], true
	}
	s := m.slot(r.seq)
	if s == nil {
		return name.Row{}, false
	}
	return name.Row{Hash: r.hash, Seq: r.seq, Due: s.due, Expires: s.expires, Target: m.targets.all[s.target-1]}, true
}

// Check finds every entry by its id, where what comes first is newer. The error wraps codec.ErrCorrupt.
func (m *Table) Check() error {
	named, found := 0, 0
	for e := range m.All {
		if e.ID != "" {
			named++
		}
	}
	for _, newest := range m.names.newest {
		at := uint32(newest)
		if at == 0 {
			continue
		}
		h := m.names.rows.at(at).hash
		last := uint64(math.MaxUint64)
		for ; at != 0; at = m.names.rows.at(at).older {
			r := m.names.rows.at(at)
			if r.hash != h || r.seq >= last {
				return fmt.Errorf("%w: seq %d after %d in the names of %x", codec.ErrCorrupt, r.seq, last, h)
			}
			if e, ok := m.Get(r.seq); ok && e.ID != "" && name.Of(e.Topic, e.ID) == h {
				found++
			}
			last = r.seq
		}
	}
	if named != found {
		return fmt.Errorf("%w: %d of the %d entries with an id are found by it", codec.ErrCorrupt, found, named)
	}
	return nil
}
