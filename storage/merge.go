package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/merge"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/segment"
)

// Merge takes one step towards fewer and fuller files: it writes a run of neighbouring
// segments anew, or the alive-set with the changes since its base. It reports whether it
// did anything; call it again until it did not, after a Flush. It blocks for the writing,
// and for Config.Pace, while Apply, flushes and readers go on. ErrDiskFull means that
// there is no room for what is alive in the segments that should be merged, and nothing
// smaller to do; ErrGeneration that a snapshot was received.
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
	from := s.pinToMerge()
	defer segment.ReleaseAll(from.segments)
	var short error
	if from.shouldFold() {
		if short = s.fold(ctx, &from); short == nil {
			return true, nil
		}
		if !errors.Is(short, ErrDiskFull) {
			return false, fmt.Errorf("fold alive-set: %w", short)
		}
	}
	step, err := s.plan(ctx, &from)
	if err = errors.Join(err, short); len(step) == 0 {
		if err != nil {
			err = fmt.Errorf("merge: %w", err)
		}
		return false, err
	}
	merged, err := s.rewrite(ctx, &from, step)
	if err != nil {
		if errors.Is(err, ErrCorrupt) {
			s.planner.SetAsideDamaged(step, from.alive)
		}
		return false, fmt.Errorf("merge: %w", err)
	}
	before, err := s.nameMerged(from.generation, step, merged)
	segment.ReleaseAll(before)
	if err != nil {
		return false, fmt.Errorf("merge: %w", err)
	}
	s.log.Debug("merged", "segments", len(step))
	return true, nil
}

// pinToMerge returns what the manifest names, its segments pinned. There are none
// while a received snapshot waits for Reload: readers still see those of before.
func (s *Store) pinToMerge() contents {
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := s.manifest.current
	if from.generation != s.generation || s.manifest.err != nil {
		return contents{}
	}
	segment.AcquireAll(from.segments)
	return from
}

// DeadSinceFlush returns about how many bytes of the segments belong to messages that have died since the last flush: until the
// next one no merge takes these for dead, and no file is dropped for them. Each message of a segment counts as large as the
// others of it. It takes some microseconds a segment, and any goroutine may call it.
func (s *Store) DeadSinceFlush() int64 {
	flushed := s.pinToMerge()
	defer segment.ReleaseAll(flushed.segments)
	bytes := 0.0
	for _, g := range flushed.segments {
		before := flushed.alive.CountRange(g.Info.First, g.Info.Last)
		s.mu.RLock()
		now := s.alive.CountRange(g.Info.First, g.Info.Last)
		s.mu.RUnlock()
		if now < before { // else nothing has died, or a snapshot was received meanwhile
			bytes += float64(g.Size) * float64(before-now) / float64(g.Info.Count)
		}
	}
	return int64(bytes)
}

// plan picks the segments to replace, none when all is well. It holds no lock but
// merging: what it counts in does not change.
func (s *Store) plan(ctx context.Context, from *contents) (step []*segment.Segment, err error) {
	free, err := s.FreeSpace()
	if err != nil {
		return nil, err
	}
	limits := merge.Limits{Width: s.cfg.MergeWidth, Files: s.cfg.MaxSegments, Room: int64(free) - spareRoom}
	step, lacking, err := s.planner.Plan(ctx, from.segments, from.alive, limits)
	if err == nil && step == nil && lacking > 0 {
		err = fmt.Errorf("%w: %s has %d bytes free, %d are needed and %d kept; make room or enlarge it", ErrDiskFull, s.cfg.Dir, free, lacking, spareRoom)
	}
	return step, err
}

// rewrite writes what is alive in the segments into one, nil when nothing is.
func (s *Store) rewrite(ctx context.Context, from *contents, step []*segment.Segment) (*segment.Segment, error) {
	span := SeqRun{step[0].Info.First, step[len(step)-1].Info.Last}
	foreign := slices.ContainsFunc(step, func(g *segment.Segment) bool { return g.Info.Foreign > 0 })
	count := from.alive.CountRange(span.First, span.Last)
	if count == 0 && !foreign {
		return nil, nil
	}
	return s.writeSegment(formOf(from.level()), span, count, func(w *segment.Writer) error {
		gathered := 0
		wrote := func(n int) error {
			if gathered += n; gathered < paceBytes {
				return nil
			}
			n, gathered = gathered, 0
			return s.pace(ctx, n)
		}
		err := merge.Entries(ctx, step, from.alive, func(e *Entry) error {
			if err := wrote(len(e.Body)); err != nil {
				return err
			}
			return w.Add(e)
		})
		if err != nil {
			return err
		}
		return merge.Rows(ctx, step, from.alive, func(r *name.Row) error {
			if err := wrote(rowRoom); err != nil {
				return err
			}
			return w.AddRow(r)
		})
	})
}

// paceBytes is how much a merge writes between two questions whether it may.
const paceBytes = 1 << 20

// pace returns when a merge may write n bytes more. The room that it found may be
// taken by the log meanwhile, and its need is an estimate: what is kept free stays
// free. With twice as many segments as there may be it waits for nothing.
func (s *Store) pace(ctx context.Context, n int) error {
	if err := s.checkRoom(spareRoom); err != nil {
		return err
	}
	if s.cfg.Pace == nil || s.Stats().Segments >= 2*s.cfg.MaxSegments {
		return nil
	}
	return s.cfg.Pace(ctx, n)
}

// nameMerged commits merged, nil for none, and shows it in the place of step. The
// caller releases what was seen before.
func (s *Store) nameMerged(generation uint64, step []*segment.Segment, merged *segment.Segment) (before []*segment.Segment, err error) {
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
// holds manifest.mu. Since step was picked flushes may have appended segments, and
// dropped some of step as fully dead: merged then holds dead entries, as any file may.
func (s *Store) commitMerged(generation uint64, step []*segment.Segment, merged *segment.Segment) error {
	next := s.manifest.current
	if next.generation != generation {
		return ErrGeneration
	}
	next.segments = slices.DeleteFunc(slices.Clone(next.segments), func(g *segment.Segment) bool { return slices.Contains(step, g) })
	if merged != nil {
		next.segments = append(next.segments, merged)
		sortBySeq(next.segments)
	}
	return s.manifest.commit(next)
}
