package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"go.etcd.io/bbolt"
)

// Merge takes one step towards fewer and fuller segments: it drops those that
// are fully dead, or writes a run of neighbours anew. It reports whether it did
// anything; call it again until it did not, after a Flush. It blocks for the
// writing, while Apply, flushes and readers go on. ErrDiskFull means that there
// is no room for the new file; ErrGeneration that a snapshot was received.
//
// A file omits only what was dead at the index that the manifest records, never
// what has died since, and a file is dropped by the same rule. After a crash the
// node starts with that alive-set and applies the log from there; were a message
// missing that is alive in it, this node would answer differently from the
// others until the log kills the message again. The dead stay dead, so a flush
// that moves the index on while a merge runs does no harm.
func (s *Store) Merge(ctx context.Context) (did bool, err error) {
	s.merging.Lock()
	defer s.merging.Unlock()
	from, step := s.plan()
	defer releaseAll(from.segments)
	if len(step) == 0 {
		return false, nil
	}
	merged, err := s.rewrite(ctx, from.alive, step)
	if err != nil {
		return false, fmt.Errorf("merge: %w", err)
	}
	before, err := s.nameMerged(from.generation, step, merged)
	releaseAll(before)
	if err != nil {
		return false, fmt.Errorf("merge: %w", err)
	}
	return true, nil
}

// plan picks the segments to replace and pins all that the manifest names.
// Nothing is picked while a received snapshot waits for Reload: readers still
// see the segments of before.
func (s *Store) plan() (from contents, step []*segment) {
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	from = s.manifest.current
	acquireAll(from.segments)
	if from.generation != s.generation || s.manifest.err != nil {
		return from, nil
	}
	p := planner{width: s.mergeWidth, limit: s.maxSegments}
	for _, g := range from.segments {
		p.add(g, countAlive(from.alive, g.info.first, g.info.last))
	}
	return from, p.pick()
}

// rewrite writes what is alive in the segments into one, nil when nothing is.
func (s *Store) rewrite(ctx context.Context, alive *roaring64.Bitmap, step []*segment) (*segment, error) {
	var room int64
	for _, g := range step {
		if n := countAlive(alive, g.info.first, g.info.last); n > 0 {
			room += g.size
		}
	}
	if room == 0 {
		return nil, nil
	}
	if err := s.checkRoom(room + spareRoom); err != nil {
		return nil, err
	}
	first, last := step[0].info.first, step[len(step)-1].info.last
	return s.writeSegment(first, last, func(add func(*Entry) error) error {
		return mergeAlive(ctx, alive, step, add)
	})
}

// mergeAlive calls add for the entries of the segments that are in alive, in
// order, after checking their bodies.
func mergeAlive(ctx context.Context, alive *roaring64.Bitmap, step []*segment, add func(*Entry) error) error {
	return guard(func() error {
		var m merger
		for _, g := range step {
			tx, err := g.db.Begin(false)
			if err != nil {
				return fmt.Errorf("read segment: %w", err)
			}
			defer tx.Rollback()
			if err := m.addSegment(g, tx, g.info.min, true); err != nil {
				return err
			}
		}
		for !m.empty() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if e := m.peek(); alive.Contains(e.Seq) {
				if err := add(&e.Entry); err != nil {
					return err
				}
			}
			if err := m.skip(); err != nil {
				return err
			}
		}
		return nil
	})
}

// addSegment adds what g holds at and after from.
func (m *merger) addSegment(g *segment, tx *bbolt.Tx, from Ref, bodies bool) error {
	c := g.cursor(tx)
	c.bodies = bodies
	e, ok, err := c.start(from)
	if err != nil || !ok {
		return err
	}
	m.add(e, c)
	return nil
}

// nameMerged commits merged, nil for none, and shows it in the place of step. The
// caller releases what was seen before.
func (s *Store) nameMerged(generation uint64, step []*segment, merged *segment) (before []*segment, err error) {
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	if err := s.commitMerged(generation, step, merged); err != nil {
		s.discard(merged)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merges++
	return s.show(s.manifest.current.segments), nil
}

// commitMerged makes the manifest name merged in the place of step. The caller
// holds manifest.mu. Flushes may have appended segments since step was picked.
func (s *Store) commitMerged(generation uint64, step []*segment, merged *segment) error {
	next := s.manifest.current
	if next.generation != generation {
		return ErrGeneration
	}
	next.segments = slices.DeleteFunc(slices.Clone(next.segments), func(g *segment) bool { return slices.Contains(step, g) })
	if merged != nil {
		next.segments = append(next.segments, merged)
		sortBySeq(next.segments)
	}
	return s.manifest.commit(next)
}
