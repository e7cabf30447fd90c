package storage

import (
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
)

// memory is a copy of what readers see at one moment, for those that look at all
// of it. Bodies are shared.
type memory struct {
	values   values
	alive    *alive.Set
	tables   []sliceSource
	spans    []SeqRun // the seqs of each table
	segments []*segment.Segment
}

// copyMemory pins the segments. Writers wait while it copies.
func (s *Store) copyMemory() memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := memory{values: s.values.clone(), alive: s.alive.Freeze(), segments: s.segments}
	segment.AcquireAll(m.segments)
	for _, t := range s.tables() {
		var all sliceSource
		t.ascend(t.min(), func(e Entry) bool {
			all = append(all, e)
			return true
		})
		m.tables = append(m.tables, all)
		m.spans = append(m.spans, SeqRun{t.base, t.next - 1})
	}
	return m
}

// each calls visit for every entry that is alive, in order of delivery; the body
// is only good during the call.
func (m *memory) each(visit func(*Entry) error) error {
	return disk.Guard(func() error {
		var merged merger
		for _, t := range slices.Clone(m.tables) {
			if e, ok, _ := t.Next(); ok {
				merged.add(e, &t)
			}
		}
		for _, g := range m.segments {
			c, err := g.Cursor(true)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := merged.start(c, g.Info.Min); err != nil {
				return err
			}
		}
		for !merged.empty() {
			if e := merged.peek(); m.alive.Contains(e.Seq) {
				if err := visit(e); err != nil {
					return err
				}
			}
			if err := merged.skip(); err != nil {
				return err
			}
		}
		return nil
	})
}

// check finds every alive message once, and no other where only those may be.
func (m *memory) check() error {
	seen := alive.NewSet()
	var last *Ref
	err := m.each(func(e *Entry) error {
		r := e.Ref()
		if last != nil && !last.Less(r) || !seen.Add(e.Seq) {
			return fmt.Errorf("%w: entry %v comes after %v", ErrCorrupt, r, *last)
		}
		last = &r
		return nil
	})
	if err != nil {
		return err
	}
	if seen.Count() != m.alive.Count() { // each only shows what is alive
		return fmt.Errorf("%w: %d entries found, %d alive", ErrCorrupt, seen.Count(), m.alive.Count())
	}
	newest := m.tables[len(m.tables)-1]
	for _, e := range newest {
		if !m.alive.Contains(e.Seq) {
			return fmt.Errorf("%w: entry %v is dead and still in the memtable", ErrCorrupt, e.Ref())
		}
	}
	return m.checkSpans()
}

// checkSpans compares which seqs each part answers for: segments, then tables,
// without a gap between the tables, up to the next seq.
func (m *memory) checkSpans() error {
	var last uint64
	for _, g := range m.segments {
		if g.Info.First <= last {
			return fmt.Errorf("%w: segment %s begins at seq %d, the one before ends at %d", ErrCorrupt, g.Path, g.Info.First, last)
		}
		last = g.Info.Last
	}
	next := m.spans[0].First
	for _, span := range m.spans {
		if span.First != next || span.First <= last {
			return fmt.Errorf("%w: memtable begins at seq %d after %d", ErrCorrupt, span.First, last)
		}
		next = span.Last + 1
	}
	if next != m.values.nextSeq {
		return fmt.Errorf("%w: memtable ends before seq %d, the next is %d", ErrCorrupt, next, m.values.nextSeq)
	}
	return nil
}
