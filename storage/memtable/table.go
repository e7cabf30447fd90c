// Package memtable has what was accepted and lies in no segment yet: the entries, and where each id is.
package memtable

import (
	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/segment"
	"github.com/tidwall/btree"
)

// A Table holds the entries accepted since the last freeze, alive ones only.
//
//	pages  seq - base -> entry, in pages of 512   (a page without entries has no slots)
//	order  (due, seq), sorted
//
// It is a seam between two orders: removal comes by seq, reading by (due, seq).
// Keeping the entries in pages leaves 16 bytes in the tree, which is what moves
// when a node splits.
//
// One goroutine changes it, and then nobody reads; while nobody changes it any number may read.
type Table struct {
	base  uint64 // first seq this table may hold
	next  uint64 // one past the last seq it was given
	pages []page
	order *btree.BTreeG[segment.Ref]
	bytes int64 // bodies
	names names

	// Names of topics are few and repeat: each is kept once.
	targets, topics texts
}

const pageSlots = 512

// A page has its slots by themselves: 32 KiB, which is as large as the runtime gives without rounding up, and
// each slot is a line of the processor's cache.
type page struct {
	slots *[pageSlots]slot // nil: there are none
	count int
}

// A slot takes 64 bytes.
type slot struct {
	due     int64
	body    []byte
	target  uint32 // its place, and one more; 0: the slot is free
	topic   uint32 // its place, and one more; 0: none
	id      string
	expires int64
}

// New returns an empty table for entries from the seq base on.
func New(base uint64) *Table {
	return &Table{
		base:  base,
		next:  base,
		order: btree.NewBTreeGOptions(segment.Ref.Less, btree.Options{NoLocks: true}),
	}
}

// First and Next are the first seq that the table may hold, and the one that its next entry has.
func (m *Table) First() uint64 { return m.base }

// Next is what First says.
func (m *Table) Next() uint64 { return m.next }

// Bytes returns the bytes of all bodies.
func (m *Table) Bytes() int64 { return m.bytes }

// Add takes an entry whose seq is Next. The body and the id are kept, not copied.
func (m *Table) Add(e *segment.Entry) {
	i := e.Seq - m.base
	m.next = e.Seq + 1
	if i/pageSlots == uint64(len(m.pages)) {
		m.pages = append(m.pages, page{})
	}
	m.put(e)
	if e.ID != "" {
		m.names.add(m, e.Hash(), e.Seq)
	}
}

// put places an entry anywhere within [base, next).
func (m *Table) put(e *segment.Entry) {
	i := e.Seq - m.base
	p := &m.pages[i/pageSlots]
	if p.slots == nil {
		p.slots = new([pageSlots]slot)
	}
	p.count++
	s := slot{due: e.Due, body: e.Body, target: m.targets.place(e.Target), id: e.ID, expires: e.Expires}
	if e.Topic != "" {
		s.topic = m.topics.place(e.Topic)
	}
	p.slots[i%pageSlots] = s
	m.order.Set(e.Ref())
	m.bytes += int64(len(e.Body))
}

// Get returns the entry of seq; the body is shared.
func (m *Table) Get(seq uint64) (segment.Entry, bool) {
	s := m.slot(seq)
	if s == nil {
		return segment.Entry{}, false
	}
	e := segment.Entry{Due: s.due, Seq: seq, Target: m.targets.all[s.target-1], ID: s.id, Expires: s.expires, Body: s.body}
	if s.topic != 0 {
		e.Topic = m.topics.all[s.topic-1]
	}
	return e, true
}

// holds reports whether the table has an entry of seq.
func (m *Table) holds(seq uint64) bool { return m.slot(seq) != nil }

// slot returns the slot of the entry of seq, nil when there is none.
func (m *Table) slot(seq uint64) *slot {
	if seq < m.base || seq >= m.next {
		return nil
	}
	i := seq - m.base
	p := &m.pages[i/pageSlots]
	if p.slots == nil || p.slots[i%pageSlots].target == 0 {
		return nil
	}
	return &p.slots[i%pageSlots]
}

// Remove drops what the table holds of the seqs first to last.
func (m *Table) Remove(first, last uint64) {
	if first <= m.base && last >= m.next-1 {
		m.clear()
		return
	}
	first, last = max(first, m.base), min(last, m.next-1)
	for seq := first; seq <= last; seq++ {
		i := seq - m.base
		p := &m.pages[i/pageSlots]
		if p.slots == nil {
			seq += pageSlots - i%pageSlots - 1 // the rest of an empty page
			continue
		}
		s := &p.slots[i%pageSlots]
		if s.target == 0 {
			continue
		}
		m.order.Delete(segment.Ref{Due: s.due, Seq: seq})
		m.bytes -= int64(len(s.body))
		*s = slot{}
		if p.count--; p.count == 0 {
			p.slots = nil
		}
	}
}

func (m *Table) clear() {
	clear(m.pages)
	m.order.Clear()
	m.bytes = 0
	m.names.forgetOwn()
}

// Len returns how many entries there are.
func (m *Table) Len() int { return m.order.Len() }

// Ascend calls visit for each entry at or after from, in order, until it returns false.
func (m *Table) Ascend(from segment.Ref, visit func(segment.Entry) bool) {
	m.order.Ascend(from, func(r segment.Ref) bool {
		e, _ := m.Get(r.Seq)
		return visit(e)
	})
}

// All yields the entries in order.
func (m *Table) All(yield func(segment.Entry) bool) { m.Ascend(m.min(), yield) }

// min returns the first ref in order, the zero Ref when there is none.
func (m *Table) min() segment.Ref {
	r, _ := m.order.Min()
	return r
}

// KeptTarget returns the name of a target as the table keeps it, or as it is given.
func (m *Table) KeptTarget(target string) string { return m.targets.kept(target) }

// Sweep drops the entries that were alive and are not now.
func (m *Table) Sweep(were, are *alive.Set) {
	for seq := range were.Within(m.base, m.next-1) {
		if !are.Contains(seq) {
			m.Remove(seq, seq)
		}
	}
}

// Absorb takes over the entries of the table that follows this one.
func (m *Table) Absorb(later *Table) {
	m.next = later.next
	for uint64(len(m.pages))*pageSlots < m.next-m.base {
		m.pages = append(m.pages, page{})
	}
	later.Ascend(later.min(), func(e segment.Entry) bool {
		m.put(&e)
		return true
	})
	m.names.absorb(m, &later.names)
}
