package storage

import (
	"github.com/carillonmq/carillon/storage/alive"
	"github.com/tidwall/btree"
)

// memtable holds the entries accepted since the last freeze, alive ones only.
//
//	pages  seq - base -> entry, in pages of 512   (a page without entries is nil)
//	order  (due, seq), sorted
//
// It is a seam between two orders: removal comes by seq, reading by (due, seq).
// Keeping the entries in pages leaves 16 bytes in the tree, which is what moves
// when a node splits.
type memtable struct {
	base  uint64 // first seq this table may hold
	next  uint64 // one past the last seq it was given
	pages []*page
	order *btree.BTreeG[Ref]
	bytes int64 // bodies

	// Target names are few and repeat: each is kept once.
	targets  []string
	targetID map[string]uint32
}

const pageSlots = 512

type page struct {
	count int
	slots [pageSlots]slot
}

type slot struct {
	due    int64
	body   []byte
	target uint32
	used   bool
}

func newMemtable(base uint64) *memtable {
	return &memtable{
		base:     base,
		next:     base,
		order:    btree.NewBTreeGOptions(Ref.Less, btree.Options{NoLocks: true}),
		targetID: make(map[string]uint32),
	}
}

// add takes an entry whose seq is m.next.
func (m *memtable) add(e *Entry) {
	i := e.Seq - m.base
	m.next = e.Seq + 1
	if i/pageSlots == uint64(len(m.pages)) {
		m.pages = append(m.pages, nil)
	}
	m.put(e)
}

// put places an entry anywhere within [base, next).
func (m *memtable) put(e *Entry) {
	i := e.Seq - m.base
	p := m.pages[i/pageSlots]
	if p == nil {
		p = new(page)
		m.pages[i/pageSlots] = p
	}
	p.count++
	p.slots[i%pageSlots] = slot{due: e.Due, body: e.Body, target: m.intern(e.Target), used: true}
	m.order.Set(e.Ref())
	m.bytes += int64(len(e.Body))
}

func (m *memtable) intern(target string) uint32 {
	id, ok := m.targetID[target]
	if !ok {
		id = uint32(len(m.targets))
		m.targets = append(m.targets, target)
		m.targetID[target] = id
	}
	return id
}

// name returns the target's name as it is kept here, or as it is given.
func (m *memtable) name(target string) string {
	if id, ok := m.targetID[target]; ok {
		return m.targets[id]
	}
	return target
}

// get returns the entry of seq; the body is shared.
func (m *memtable) get(seq uint64) (Entry, bool) {
	if seq < m.base || seq >= m.next {
		return Entry{}, false
	}
	i := seq - m.base
	p := m.pages[i/pageSlots]
	if p == nil || !p.slots[i%pageSlots].used {
		return Entry{}, false
	}
	s := &p.slots[i%pageSlots]
	return Entry{Due: s.due, Seq: seq, Target: m.targets[s.target], Body: s.body}, true
}

// remove drops what the table holds of the run.
func (m *memtable) remove(run SeqRun) {
	if run.First <= m.base && run.Last >= m.next-1 {
		m.clear()
		return
	}
	first, last := max(run.First, m.base), min(run.Last, m.next-1)
	for seq := first; seq <= last; seq++ {
		i := seq - m.base
		p := m.pages[i/pageSlots]
		if p == nil {
			seq += pageSlots - i%pageSlots - 1 // the rest of an empty page
			continue
		}
		s := &p.slots[i%pageSlots]
		if !s.used {
			continue
		}
		m.order.Delete(Ref{Due: s.due, Seq: seq})
		m.bytes -= int64(len(s.body))
		*s = slot{}
		if p.count--; p.count == 0 {
			m.pages[i/pageSlots] = nil
		}
	}
}

func (m *memtable) clear() {
	clear(m.pages)
	m.order.Clear()
	m.bytes = 0
}

func (m *memtable) len() int { return m.order.Len() }

// ascend calls visit for each entry at or after from until it returns false.
func (m *memtable) ascend(from Ref, visit func(Entry) bool) {
	m.order.Ascend(from, func(r Ref) bool {
		e, _ := m.get(r.Seq)
		return visit(e)
	})
}

// min returns the first ref in order, the zero Ref when there is none.
func (m *memtable) min() Ref {
	r, _ := m.order.Min()
	return r
}

// sweep drops the entries that were alive and are not now.
func (m *memtable) sweep(were, are *alive.Set) {
	for seq := range were.Within(m.base, m.next-1) {
		if !are.Contains(seq) {
			m.remove(SeqRun{seq, seq})
		}
	}
}

// absorb takes over the entries of the table that follows this one.
func (m *memtable) absorb(later *memtable) {
	m.next = later.next
	for uint64(len(m.pages))*pageSlots < m.next-m.base {
		m.pages = append(m.pages, nil)
	}
	later.ascend(later.min(), func(e Entry) bool {
		m.put(&e)
		return true
	})
}
