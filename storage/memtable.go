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
	names names

	// Names of topics are few and repeat: each is kept once.
	targets, topics texts
}

const pageSlots = 512

type page struct {
	slots [pageSlots]slot // first, so that each is a line of the processor's cache
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
		m.names.add(m, nameOf(e), e.Seq)
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
	s := slot{due: e.Due, body: e.Body, target: m.targets.place(e.Target), id: e.ID, expires: e.Expires}
	if e.Topic != "" {
		s.topic = m.topics.place(e.Topic)
	}
	p.slots[i%pageSlots] = s
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
	e := Entry{Due: s.due, Seq: seq, Target: m.targets.all[s.target-1], ID: s.id, Expires: s.expires, Body: s.body}
	if s.topic != 0 {
		e.Topic = m.topics.all[s.topic-1]
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

// readAhead is how many entries are fetched together.
const readAhead = 64

// A reader goes over a memtable in order, and fetches some entries at a time. They lie scattered: one after the other
// each would have to be waited for.
type reader struct {
	table   *memtable
	refs    [readAhead]Ref
	entries [readAhead]Entry
	fetched byte // says nothing, but has the fetching done
}

// each calls visit for each entry until it returns an error, which is returned. The entry is good until visit returns.
func (r *reader) each(visit func(*Entry) error) (err error) {
	n := 0
	r.table.order.Ascend(r.table.min(), func(ref Ref) bool {
		r.refs[n] = ref
		if n++; n == readAhead {
			err, n = r.visit(n, visit), 0
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return r.visit(n, visit)
}

func (r *reader) visit(n int, visit func(*Entry) error) error {
	for i := range n {
		r.entries[i], _ = r.table.get(r.refs[i].Seq)
	}
	for i := range n {
		e := &r.entries[i]
		if len(e.Body) > 0 {
			r.fetched ^= e.Body[0]
		}
		if len(e.ID) > 0 {
			r.fetched ^= e.ID[0]
		}
	}
	for i := range n {
		if err := visit(&r.entries[i]); err != nil {
			return err
		}
	}
	return nil
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
