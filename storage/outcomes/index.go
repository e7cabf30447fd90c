package outcomes

import (
	"encoding/binary"
	"math/bits"

	"github.com/carillonmq/carillon/storage/name"
)

// An index finds rows by their ids, in tables of slots that probe linearly. A slot is four
// bytes that tell a row, which has the id itself. There are many tables, chosen by bits of the
// id, so that one grows in a tenth of a millisecond while a million ids are known.
type index [1 << tableBits]table

type table struct {
	slots []uint32 // 0: free; a power of two of them, a quarter of them free
	used  int
}

const (
	tableBits = 10
	leastSize = 8
	// slotRows is how many rows slots can tell apart: more than there ever are.
	slotRows = 1<<32 - 1
)

// expect makes room for as many ids, in an index that has none.
func (x *index) expect(ids uint64) {
	each := ids >> tableBits * 3 / 2 // some tables have more than others
	if each < leastSize {
		return
	}
	for i := range x {
		x[i].slots = make([]uint32, 1<<bits.Len64(each))
	}
}

// slotOf returns what stands for a row. It is never 0, however many rows there ever were.
func slotOf(at uint64) uint32 { return uint32(at%slotRows) + 1 }

// rowOf returns the row that a slot stands for: at or before next, by less than slotRows.
func (l *list) rowOf(slot uint32) uint64 {
	return l.next - (uint64(slotOf(l.next))+slotRows-uint64(slot))%slotRows
}

func (l *list) tableOf(id name.Hash) *table {
	return &l.newest[binary.BigEndian.Uint16(id[:])>>(16-tableBits)]
}

// home is where probing for an id begins.
func (t *table) home(id name.Hash) uint64 {
	return binary.BigEndian.Uint64(id[8:]) & uint64(len(t.slots)-1)
}

// probe returns the slot of an id, or the free one where it would be. There is one.
func (l *list) probe(t *table, id name.Hash) (slot uint64) {
	for slot = t.home(id); t.slots[slot] != 0; slot = t.after(slot) {
		if l.row(l.rowOf(t.slots[slot])).name == id {
			break
		}
	}
	return slot
}

func (t *table) after(slot uint64) uint64 { return (slot + 1) & uint64(len(t.slots)-1) }

// find returns the newest row of an id.
func (l *list) find(id name.Hash) (at uint64, ok bool) {
	t := l.tableOf(id)
	if t.used == 0 {
		return 0, false
	}
	slot := t.slots[l.probe(t, id)]
	return l.rowOf(slot), slot != 0
}

// put makes a row the newest of its id.
func (l *list) put(id name.Hash, at uint64) {
	t := l.tableOf(id)
	if t.used >= len(t.slots)/4*3 {
		l.grow(t)
	}
	slot := l.probe(t, id)
	if t.slots[slot] == 0 {
		t.used++
	}
	t.slots[slot] = slotOf(at)
}

func (l *list) grow(t *table) {
	larger := table{slots: make([]uint32, max(2*len(t.slots), leastSize)), used: t.used}
	for _, known := range t.slots {
		if known == 0 {
			continue
		}
		slot := larger.home(l.row(l.rowOf(known)).name)
		for larger.slots[slot] != 0 {
			slot = larger.after(slot)
		}
		larger.slots[slot] = known
	}
	*t = larger
}

// drop takes a row that is about to be forgotten out, unless a newer one of its id is in its
// place. Those that had to probe beyond it move up, so that no search ends at the gap.
func (l *list) drop(id name.Hash, at uint64) {
	t := l.tableOf(id)
	gap := l.probe(t, id)
	if t.slots[gap] != slotOf(at) {
		return
	}
	t.used--
	mask := uint64(len(t.slots) - 1)
	for slot := t.after(gap); t.slots[slot] != 0; slot = t.after(slot) {
		home := t.home(l.row(l.rowOf(t.slots[slot])).name)
		if (slot-home)&mask >= (slot-gap)&mask { // its search passes the gap
			t.slots[gap], gap = t.slots[slot], slot
		}
	}
	t.slots[gap] = 0
}
