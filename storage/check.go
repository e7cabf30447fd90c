package storage

import (
	"fmt"
	"iter"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/segment"
)

// Check reads everything and compares it: checksums of every entry, order, what
// the manifest names with what is in memory, and that every message alive is in
// exactly one place. Apply waits while the memtables are looked at. It is for
// tests.
func (s *Store) Check() error {
	named, err := s.pinNamed()
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	defer segment.ReleaseAll(named.segments)
	if err := named.check(); err != nil {
		return fmt.Errorf("check manifest: %w", err)
	}
	if err := named.verify(); err != nil {
		return fmt.Errorf("check manifest: %w", err)
	}
	m := s.copyMemory()
	defer segment.ReleaseAll(m.segments)
	if err := m.check(); err != nil {
		return fmt.Errorf("check memory: %w", err)
	}
	return nil
}

// checkRanges compares an alive-set with the segments that should hold it.
func checkRanges(set *alive.Set, nextSeq uint64, infos iter.Seq[segment.Info]) error {
	var covered, last uint64
	for i := range infos {
		if i.First <= last || i.Last >= nextSeq {
			return fmt.Errorf("%w: segment of seqs %d to %d after one that ends at %d; the next seq is %d", ErrCorrupt, i.First, i.Last, last, nextSeq)
		}
		n := set.CountRange(i.First, i.Last)
		if n > i.Count {
			return fmt.Errorf("%w: %d of the seqs %d to %d are alive, their segment has %d entries", ErrCorrupt, n, i.First, i.Last, i.Count)
		}
		covered += n
		last = i.Last
	}
	if n := set.Count(); n != covered {
		return fmt.Errorf("%w: %d messages are alive, the segments answer for %d of them", ErrCorrupt, n, covered)
	}
	return nil
}

// verify reads every entry of every segment, and finds every alive one.
func (c *contents) verify() error {
	for _, g := range c.segments {
		found, err := g.Verify(c.alive)
		if err != nil {
			return err
		}
		if n := c.alive.CountRange(g.Info.First, g.Info.Last); found != n {
			return fmt.Errorf("%w: %d of the seqs %d to %d are alive, segment %s has %d of them", ErrCorrupt, n, g.Info.First, g.Info.Last, g.Path, found)
		}
	}
	return nil
}
