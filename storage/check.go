package storage

import (
	"fmt"
	"iter"

	"github.com/carillonmq/carillon/storage/alive"
	"go.etcd.io/bbolt"
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
	defer releaseAll(named.segments)
	if err := named.check(); err != nil {
		return fmt.Errorf("check manifest: %w", err)
	}
	if err := named.verify(); err != nil {
		return fmt.Errorf("check manifest: %w", err)
	}
	m := s.copyMemory()
	defer releaseAll(m.segments)
	if err := m.check(); err != nil {
		return fmt.Errorf("check memory: %w", err)
	}
	return nil
}

// checkRanges compares an alive-set with the segments that should hold it.
func checkRanges(set *alive.Set, nextSeq uint64, infos iter.Seq[segmentInfo]) error {
	var covered, last uint64
	for i := range infos {
		if i.first <= last || i.last >= nextSeq {
			return fmt.Errorf("%w: segment of seqs %d to %d after one that ends at %d; the next seq is %d", ErrCorrupt, i.first, i.last, last, nextSeq)
		}
		n := set.CountRange(i.first, i.last)
		if n > i.count {
			return fmt.Errorf("%w: %d of the seqs %d to %d are alive, their segment has %d entries", ErrCorrupt, n, i.first, i.last, i.count)
		}
		covered += n
		last = i.last
	}
	if n := set.Count(); n != covered {
		return fmt.Errorf("%w: %d messages are alive, the segments answer for %d of them", ErrCorrupt, n, covered)
	}
	return nil
}

// verify reads every entry of every segment, and finds every alive one.
func (c *contents) verify() error {
	for _, g := range c.segments {
		found, err := g.verify(c.alive)
		if err != nil {
			return err
		}
		if n := c.alive.CountRange(g.info.first, g.info.last); found != n {
			return fmt.Errorf("%w: %d of the seqs %d to %d are alive, segment %s has %d of them", ErrCorrupt, n, g.info.first, g.info.last, g.path, found)
		}
	}
	return nil
}

// verify reads the segment from end to end and returns how many of its entries
// are alive.
func (s *segment) verify(set *alive.Set) (found uint64, err error) {
	seen := alive.NewSet()
	err = s.view(func(tx *bbolt.Tx) error {
		c := s.cursor(tx)
		c.bodies = true
		got := segmentInfo{first: s.info.first, last: s.info.last, chunks: s.info.chunks}
		e, ok, err := c.start(s.info.min)
		got.min = e.Ref()
		for ; ok && err == nil; e, ok, err = c.next() {
			if !s.holds(e.Seq) || !seen.Add(e.Seq) {
				return fmt.Errorf("%w: segment %s: entry %v is there twice, or out of its seqs %d to %d", ErrCorrupt, s.path, e.Ref(), s.info.first, s.info.last)
			}
			got.count, got.bodies, got.max = got.count+1, got.bodies+int64(len(e.Body)), e.Ref()
			if set.Contains(e.Seq) {
				found++
			}
		}
		if err != nil {
			return err
		}
		if got != s.info || c.loads != int(s.info.chunks) {
			return fmt.Errorf("%w: segment %s holds %+v, was written with %+v", ErrCorrupt, s.path, got, s.info)
		}
		return nil
	})
	return found, err
}
