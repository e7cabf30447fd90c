package merge

import (
	"slices"

	"github.com/carillonmq/carillon/storage/segment"
)

// A Source yields entries in order of delivery.
type Source interface {
	// Next returns the entry after the one before, good until the next call; nil at the end.
	Next() (*segment.Entry, error)
}

// A Heap yields the entries of several sources in order of delivery. It is a binary
// heap of their heads. The zero value is empty.
type Heap struct{ heads []head }

type head struct {
	*segment.Entry // the source's own
	from           Source
}

// Add takes a source whose first entry was read already.
func (h *Heap) Add(first *segment.Entry, from Source) {
	h.heads = append(h.heads, head{first, from})
	for i := len(h.heads) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.heads[i], h.heads[parent] = h.heads[parent], h.heads[i]
		i = parent
	}
}

// Start takes a cursor's entries at and after from.
func (h *Heap) Start(c *segment.Cursor, from segment.Ref) error {
	e, err := c.Start(from)
	if err == nil && e != nil {
		h.Add(e, c)
	}
	return err
}

// Empty reports whether there are no entries left.
func (h *Heap) Empty() bool { return len(h.heads) == 0 }

// From returns the source of the entry that Peek shows.
func (h *Heap) From() Source { return h.heads[0].from }

// Peek returns the first entry that is left, good until Skip. There must be one.
func (h *Heap) Peek() *segment.Entry { return h.heads[0].Entry }

// Skip moves past the entry that Peek shows.
func (h *Heap) Skip() error {
	e, err := h.heads[0].from.Next()
	if err != nil {
		return err
	}
	if e != nil {
		h.heads[0].Entry = e
	} else {
		last := len(h.heads) - 1
		h.heads[0] = h.heads[last]
		h.heads = h.heads[:last]
	}
	h.sink(0)
	return nil
}

// Keep leaves out the sources of which keep says so.
func (h *Heap) Keep(keep func(Source) bool) {
	h.heads = slices.DeleteFunc(h.heads, func(e head) bool { return !keep(e.from) })
	for i := len(h.heads)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// sink moves the head at i down to its place.
func (h *Heap) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.heads) {
			return
		}
		if child+1 < len(h.heads) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.heads[i], h.heads[child] = h.heads[child], h.heads[i]
		i = child
	}
}

func (h *Heap) less(i, j int) bool { return h.heads[i].Ref().Less(h.heads[j].Ref()) }

// A Slice is a source of entries gathered before.
type Slice []segment.Entry

// Next takes the first entry off the slice.
func (s *Slice) Next() (*segment.Entry, error) {
	if len(*s) == 0 {
		return nil, nil
	}
	e := &(*s)[0]
	*s = (*s)[1:]
	return e, nil
}
