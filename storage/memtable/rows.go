package memtable

import (
	"cmp"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/name"
)

// Rows are those of a segment: of all of a table's entries with an id, though they may have died since, and of the foreign
// messages that are alive in the set. The table must not change while they are used.
//
// They are dealt out by the first byte of their hashes, and each share by the second one when its turn comes, so that what
// is left to compare is few. What is dealt out is half as large as a row and has no pointers: the collector, which would
// look at it all while it is written here and there, has nothing to look at.
type Rows struct {
	table *Table
	dealt []named
	ends  [256]int // of the shares in dealt
}

// Rows returns the rows of the table as the set has them.
func (m *Table) Rows(set *alive.Set) *Rows {
	r := &Rows{table: m}
	for n := range m.names.rows.all {
		if m.hasRow(n, set) {
			r.ends[n.hash[0]]++
		}
	}
	r.dealt = make([]named, begins(&r.ends))
	for n := range m.names.rows.all {
		if m.hasRow(n, set) {
			at := &r.ends[n.hash[0]]
			r.dealt[*at] = *n
			*at++
		}
	}
	return r
}

// Len returns how many there are.
func (r *Rows) Len() int { return len(r.dealt) }

// Each calls visit for each row in the order of their keys until it returns an error, which is returned. The row is good
// until visit returns.
func (r *Rows) Each(visit func(*name.Row) error) error {
	var share []named
	var rows []name.Row
	begin := 0
	for _, end := range r.ends {
		share = slices.Grow(share[:0], end-begin)[:end-begin]
		sortShare(share, r.dealt[begin:end])
		rows = rows[:0]
		for i := range share { // all of them before any is used: they lie scattered
			row, _ := r.table.row(&share[i])
			rows = append(rows, row)
		}
		for i := range rows {
			if err := visit(&rows[i]); err != nil {
				return err
			}
		}
		begin = end
	}
	return nil
}

// sortShare puts those of from, whose hashes begin with one byte, into rows in their order.
func sortShare(rows, from []named) {
	var ends [256]int
	for i := range from {
		ends[from[i].hash[1]]++
	}
	begins(&ends)
	for i := range from {
		at := &ends[from[i].hash[1]]
		rows[*at] = from[i]
		*at++
	}
	begin := 0
	for _, end := range ends {
		slices.SortFunc(rows[begin:end], func(a, b named) int {
			if x, y := a.hash.Head(), b.hash.Head(); x != y {
				return cmp.Compare(x, y)
			}
			return cmp.Or(slices.Compare(a.hash[:], b.hash[:]), cmp.Compare(b.seq, a.seq)) // as name.Key has it
		})
		begin = end
	}
}

// begins makes of the sizes of shares where each begins, and returns where the last one ends.
func begins(sizes *[256]int) (end int) {
	for i, n := range sizes {
		sizes[i], end = end, end+n
	}
	return end
}

func (m *Table) hasRow(r *named, set *alive.Set) bool {
	if r.foreign != 0 {
		return set.Contains(r.seq)
	}
	return m.holds(r.seq)
}
