package storage

import (
	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/name"
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
	names names

	// Names of topics are few and repeat: each is kept once.
	targets, topics texts
}

const pageSlots = 512

type page struct {
	count int
	slots [pageSlots]slot
	tails *[pageSlots]tail // nil while no entry of the page has one
}

type slot struct {
	due    int64
	body   []byte
	target uint32 // its place, and one more; 0: the slot is free
	topic  uint32 // its place, and one more; 0: none
}

// A tail is what only some entries have.
type tail struct {
	id      string
	expires int64
}

// texts keeps each text once. The zero value is empty.
type texts struct {
	all    []string
	places map[string]uint32
}

// place returns the text's place, and one more.
func (t *texts) place(text string) uint32 {
	if n := len(t.all); n > 0 && t.all[n-1] == text {
		return uint32(n)
	}
	place, ok := t.places[text]
	if !ok {
		if t.places == nil {
			t.places = make(map[string]uint32)
		}
		t.all = append(t.all, text)
		place = uint32(len(t.all))
		t.places[text] = place
	}
	return place
}

// kept returns the text as it is kept here, or as it is given.
func (t *texts) kept(text string) string {
	if place, ok := t.places[text]; ok {
		return t.all[place-1]
	}
	return text
}

func newMemtable(base uint64) *memtable {
	return &memtable{
		base:  base,
		next:  base,
		order: btree.NewBTreeGOptions(Ref.Less, btree.Options{NoLocks: true}),
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
	if e.ID != "" {
		m.names.add(m, name.Of(e.Topic, e.ID), e.Seq)
	}
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
	s := slot{due: e.Due, body: e.Body, target: m.targets.place(e.Target)}
	if e.Topic != "" {
		s.topic = m.topics.place(e.Topic)
	}
	p.slots[i%pageSlots] = s
	if e.ID != "" || e.Expires != 0 {
		if p.tails == nil {
			p.tails = new([pageSlots]tail)
		}
		p.tails[i%pageSlots] = tail{id: e.ID, expires: e.Expires}
	}
	m.order.Set(e.Ref())
	m.bytes += int64(len(e.Body))
}

// get returns the entry of seq; the body is shared.
func (m *memtable) get(seq uint64) (Entry, bool) {
	if seq < m.base || seq >= m.next {
		return Entry{}, false
	}
	i := seq - m.base
	p := m.pages[i/pageSlots]
	if p == nil || p.slots[i%pageSlots].target == 0 {
		return Entry{}, false
	}
	s := &p.slots[i%pageSlots]
	e := Entry{Due: s.due, Seq: seq, Target: m.targets.all[s.target-1], Body: s.body}
	if s.topic != 0 {
		e.Topic = m.topics.all[s.topic-1]
	}
	if p.tails != nil {
		e.ID, e.Expires = p.tails[i%pageSlots].id, p.tails[i%pageSlots].expires
	}
	return e, true
}

// holds reports whether the table has an entry of seq.
func (m *memtable) holds(seq uint64) bool {
	if seq < m.base || seq >= m.next {
		return false
	}
	i := seq - m.base
	p := m.pages[i/pageSlots]
	return p != nil && p.slots[i%pageSlots].target != 0
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
		if s.target == 0 {
			continue
		}
		m.order.Delete(Ref{Due: s.due, Seq: seq})
		m.bytes -= int64(len(s.body))
		*s = slot{}
		if p.tails != nil {
			p.tails[i%pageSlots] = tail{}
		}
		if p.count--; p.count == 0 {
			m.pages[i/pageSlots] = nil
		}
	}
}

func (m *memtable) clear() {
	clear(m.pages)
	m.order.Clear()
	m.bytes = 0
	m.names.forgetOwn()
}

func (m *memtable) len() int { return m.order.Len() }

// ascend calls visit for each entry at or after from until it returns false.
func (m *memtable) ascend(from Ref, visit func(Entry) bool) {
	m.order.Ascend(from, func(r Ref) bool {
		e, _ := m.get(r.Seq)
		return visit(e)
	})
}

// all yields the entries in order.
func (m *memtable) all(yield func(Entry) bool) { m.ascend(m.min(), yield) }

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
	m.names.absorb(m, &later.names)
}
