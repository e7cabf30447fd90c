package storage

import (
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/name"
)

// names says which messages the ids of a memtable stand for: the table's own entries, and
// foreign ones, which lie in segments from before LevelThree. The zero value is empty.
//
//	newest  hash -> row -> older row of the same name -> ...   (seqs fall)
//
// A message that dies stays in its chain until another one takes the name: then the dead at its
// head go. So a look-up that finds the head alive is one step, and killing costs nothing.
type names struct {
	newest  map[name.Hash]uint32 // place in rows, and one more
	rows    []named
	foreign []name.Row
}

type named struct {
	hash    name.Hash
	seq     uint64
	older   uint32 // place in rows, and one more; 0: none
	foreign uint32 // place in foreign, and one more; 0: one of the table's own entries
}

// add takes the name of an entry that the table has been given last.
func (n *names) add(m *memtable, h name.Hash, seq uint64) {
	if n.newest == nil {
		n.newest = make(map[name.Hash]uint32)
	}
	head := n.newest[h]
	for head != 0 && n.rows[head-1].foreign == 0 && !m.holds(n.rows[head-1].seq) {
		head = n.rows[head-1].older
	}
	n.rows = append(n.rows, named{hash: h, seq: seq, older: head})
	n.newest[h] = uint32(len(n.rows))
}

// addForeign takes the name of a message that lies in a segment, where its seq belongs.
func (n *names) addForeign(r name.Row) {
	if n.newest == nil {
		n.newest = make(map[name.Hash]uint32)
	}
	var newer uint32
	older := n.newest[r.Hash]
	for ; older != 0 && n.rows[older-1].seq > r.Seq; older = n.rows[older-1].older {
		newer = older
	}
	if older != 0 && n.rows[older-1].seq == r.Seq {
		return
	}
	n.foreign = append(n.foreign, r)
	n.rows = append(n.rows, named{hash: r.Hash, seq: r.Seq, older: older, foreign: uint32(len(n.foreign))})
	if newer == 0 {
		n.newest[r.Hash] = uint32(len(n.rows))
	} else {
		n.rows[newer-1].older = uint32(len(n.rows))
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
func (n *names) absorb(m *memtable, later *names) {
	for _, r := range later.rows {
		if r.foreign == 0 {
			n.add(m, r.hash, r.seq)
		} else {
			n.addForeign(later.foreign[r.foreign-1])
		}
	}
}

// find returns the newest message of the name that is alive.
func (m *memtable) find(h name.Hash, set *alive.Set) (name.Row, bool) {
	n := &m.names
	for at := n.newest[h]; at != 0; at = n.rows[at-1].older {
		if r := &n.rows[at-1]; set.Contains(r.seq) {
			return m.row(r)
		}
	}
	return name.Row{}, false
}

// row returns the row that a segment has for it, false when its entry has left the table.
func (m *memtable) row(r *named) (name.Row, bool) {
	if r.foreign != 0 {
		return m.names.foreign[r.foreign-1], true
	}
	e, ok := m.get(r.seq)
	return name.Row{Hash: r.hash, Seq: r.seq, Due: e.Due, Expires: e.Expires, Target: e.Target}, ok
}

// rows returns what a segment has for the table's names, in order: all of its entries with an
// id, though they may have died since, and the foreign ones that are alive.
func (m *memtable) rows(set *alive.Set) []name.Row {
	rows := make([]name.Row, 0, len(m.names.rows))
	for i := range m.names.rows {
		r := &m.names.rows[i]
		if r.foreign != 0 && !set.Contains(r.seq) {
			continue
		}
		if row, ok := m.row(r); ok {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b name.Row) int { return a.Key().Compare(b.Key()) })
	return rows
}
