package storage

import (
	"cmp"
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
	rows    []named
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
		if there == 0 || there>>32 == upper && n.rows[uint32(there)-1].hash == *h {
			return at
		}
	}
}

// home returns where a name with this upper half of its head belongs.
func (n *names) home(upper uint64) int { return int(upper * uint64(len(n.newest)) >> 32) }

// setNewest makes the row at a place, given with one more, the newest of its name.
func (n *names) setNewest(row uint32) {
	if 2*n.count >= len(n.newest) {
		n.grow()
	}
	h := &n.rows[row-1].hash
	at := n.at(h)
	if n.newest[at] == 0 {
		n.count++
	}
	n.newest[at] = h.Head()>>32<<32 | uint64(row)
}

func (n *names) grow() {
	before := n.newest
	n.newest = make([]uint64, max(leastNames, 2*len(before)))
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
func (n *names) add(m *memtable, h name.Hash, seq uint64) {
	older := n.find(&h)
	for older != 0 && n.rows[older-1].foreign == 0 && !m.holds(n.rows[older-1].seq) {
		older = n.rows[older-1].older
	}
	n.rows = append(n.rows, named{hash: h, seq: seq, older: older})
	n.setNewest(uint32(len(n.rows)))
}

// addForeign takes the name of a message that lies in a segment, where its seq belongs.
func (n *names) addForeign(r name.Row) {
	var newer uint32
	older := n.find(&r.Hash)
	for ; older != 0 && n.rows[older-1].seq > r.Seq; older = n.rows[older-1].older {
		newer = older
	}
	if older != 0 && n.rows[older-1].seq == r.Seq {
		return
	}
	n.foreign = append(n.foreign, r)
	n.rows = append(n.rows, named{hash: r.Hash, seq: r.Seq, older: older, foreign: uint32(len(n.foreign))})
	if newer == 0 {
		n.setNewest(uint32(len(n.rows)))
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
	for at := n.find(&h); at != 0; at = n.rows[at-1].older {
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

// sortedRows returns the rows of a segment in the order of their keys: those of all of the table's
// entries with an id, though they may have died since, and of the foreign messages that are alive.
//
// They are dealt out by the first byte of their hashes, and each share is sorted by itself. So the
// table is read from front to back, and what is sorted fits into the processor's cache.
func (m *memtable) sortedRows(set *alive.Set) []name.Row {
	var ends [256]int // of the shares
	for i := range m.names.rows {
		if r := &m.names.rows[i]; m.hasRow(r, set) {
			ends[r.hash[0]]++
		}
	}
	total := 0
	for i, n := range ends {
		ends[i], total = total, total+n
	}
	rows := make([]name.Row, total)
	for i := range m.names.rows {
		if r := &m.names.rows[i]; m.hasRow(r, set) {
			rows[ends[r.hash[0]]], _ = m.row(r)
			ends[r.hash[0]]++
		}
	}
	begin := 0
	for _, end := range ends {
		slices.SortFunc(rows[begin:end], func(a, b name.Row) int {
			if x, y := a.Hash.Head(), b.Hash.Head(); x != y {
				return cmp.Compare(x, y)
			}
			return a.Key().Compare(b.Key())
		})
		begin = end
	}
	return rows
}

func (m *memtable) hasRow(r *named, set *alive.Set) bool {
	if r.foreign != 0 {
		return set.Contains(r.seq)
	}
	return m.holds(r.seq)
}
