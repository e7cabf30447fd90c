package storage

import "github.com/carillonmq/carillon/storage/segment"

// source yields entries in (due, seq) order.
type source interface {
	Next() (Entry, bool, error)
}

// merger yields the entries of several sources in (due, seq) order. It is a
// binary heap of their heads.
type merger struct{ heads []head }

type head struct {
	Entry
	from source
}

// add takes a source whose first entry was read already.
func (m *merger) add(first Entry, from source) {
	m.heads = append(m.heads, head{first, from})
	for i := len(m.heads) - 1; i > 0; {
		parent := (i - 1) / 2
		if !m.less(i, parent) {
			return
		}
		m.heads[i], m.heads[parent] = m.heads[parent], m.heads[i]
		i = parent
	}
}

// start adds what the cursor's segment holds at and after from.
func (m *merger) start(c *segment.Cursor, from Ref) error {
	e, ok, err := c.Start(from)
	if err == nil && ok {
		m.add(e, c)
	}
	return err
}

func (m *merger) empty() bool { return len(m.heads) == 0 }

// peek returns the entry that next will return; the merger must not be empty.
func (m *merger) peek() *Entry { return &m.heads[0].Entry }

// skip moves past the entry that peek shows.
func (m *merger) skip() error {
	e, ok, err := m.heads[0].from.Next()
	if err != nil {
		return err
	}
	if ok {
		m.heads[0].Entry = e
	} else {
		last := len(m.heads) - 1
		m.heads[0] = m.heads[last]
		m.heads = m.heads[:last]
	}
	m.sink()
	return nil
}

func (m *merger) sink() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(m.heads) {
			return
		}
		if child+1 < len(m.heads) && m.less(child+1, child) {
			child++
		}
		if !m.less(child, i) {
			return
		}
		m.heads[i], m.heads[child] = m.heads[child], m.heads[i]
		i = child
	}
}

func (m *merger) less(i, j int) bool { return m.heads[i].Ref().Less(m.heads[j].Ref()) }

// sliceSource yields entries gathered before.
type sliceSource []Entry

func (s *sliceSource) Next() (Entry, bool, error) {
	if len(*s) == 0 {
		return Entry{}, false, nil
	}
	e := (*s)[0]
	*s = (*s)[1:]
	return e, true, nil
}
