package storage

import (
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/memtable"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
)

// Frozen is the schedule as it was at one log index, to be written to disk. It
// belongs to one goroutine at a time.
type Frozen struct {
	store      *Store
	table      *memtable.Table // nil when another Frozen was outstanding
	values     values
	alive      *alive.Set
	outcomes   *outcomes.Frozen
	applied    uint64
	generation uint64
}

// Freeze takes the schedule as it is now. It costs a copy of the source positions, 8 bytes for
// each 16 million seqs given so far and 32 for each thousand outcomes, nothing per message. Until
// the Frozen is flushed or released, another one cannot be flushed. Called by the writer.
func (s *Store) Freeze() *Frozen {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Frozen{store: s, generation: s.generation, applied: s.values.appliedIndex}
	if s.flushing != nil {
		return f
	}
	f.table, f.values, f.alive, f.outcomes = s.table, s.values.clone(), s.alive.Freeze(), s.outcomes.Freeze()
	s.flushing, s.table = s.table, memtable.New(s.values.nextSeq)
	return f
}

// Flush writes what was frozen into a segment, makes it durable, and names it in
// the manifest together with the state and meta. Afterwards the log up to
// meta.Index is not needed any more. It blocks for the writing and the syncs,
// while Apply and readers go on.
//
// On an error nothing has changed: Flush may be called again, or Release. The
// error wraps ErrDiskFull when room would cure it, ErrGeneration when the frozen
// state is of the past, ErrFlushing when another Frozen is outstanding.
func (f *Frozen) Flush(meta SnapshotMeta) error {
	if f.table == nil {
		return fmt.Errorf("flush: %w", ErrFlushing)
	}
	if meta.Index < f.applied {
		return fmt.Errorf("flush: snapshot index %d is below %d, which the frozen schedule contains", meta.Index, f.applied)
	}
	written, err := f.writeSegment()
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if written != nil {
		f.store.log.Debug("flushed", "path", written.Path, "messages", f.table.Len())
	}
	before, err := f.name(written, meta)
	segment.ReleaseAll(before)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	f.store.log.Debug("manifest names what was flushed", "index", meta.Index)
	return nil
}

// writeSegment returns nil when there is nothing to write. The table does not
// change while it is frozen, so it is read without a lock; what has died since is
// written, for it is alive at the index that the manifest will record.
func (f *Frozen) writeSegment() (*segment.Segment, error) {
	rows := f.table.Rows(f.alive)
	if f.table.Len()+rows.Len() == 0 {
		return nil, nil
	}
	if err := f.store.checkRoom(f.table.Bytes() + int64(rows.Len())*rowRoom); err != nil {
		return nil, err
	}
	span := SeqRun{f.table.First(), f.table.Next() - 1}
	return f.store.writeSegment(formOf(f.values.level), span, uint64(f.table.Len()), func(w *segment.Writer) error {
		if err := f.table.Each(w.Add); err != nil {
			return err
		}
		return rows.Each(w.AddRow)
	})
}

// rowRoom is what an id takes on disk with its row, the id of its entry and its part of a
// filter, at a guess.
const rowRoom = 100

// formOf returns how segments are written that a state of this level names.
func formOf(l Level) segment.Form {
	if l < LevelThree {
		return segment.Plain
	}
	return segment.WithIDs
}

// name commits the segment and shows it in the place of the table. The caller
// releases what was seen before.
func (f *Frozen) name(written *segment.Segment, meta SnapshotMeta) (before []*segment.Segment, err error) {
	s := f.store
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	if err := f.commit(written, meta); err != nil {
		s.discard(written)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing = nil
	s.flushes++
	return s.show(s.manifest.current.segments), nil
}

// commit makes the manifest name the segment, and no longer those that are fully
// dead at the index that it records with them: their space comes back with the
// flush, however long a merge may take. Of one with rows of messages elsewhere a merge
// finds out. The caller holds manifest.mu.
func (f *Frozen) commit(written *segment.Segment, meta SnapshotMeta) error {
	s := f.store
	if !f.current() || f.generation != s.manifest.current.generation {
		return ErrGeneration
	}
	next := s.manifest.current
	next.meta, next.state, next.alive, next.outcomes = meta, encodeValues(&f.values), f.alive, f.outcomes
	next.segments = slices.DeleteFunc(slices.Clone(next.segments), func(g *segment.Segment) bool {
		return f.alive.CountRange(g.Info.First, g.Info.Last) == 0 && g.Info.Foreign == 0
	})
	if written != nil {
		next.segments = append(next.segments, written)
	}
	return s.manifest.commit(next)
}

// current reports whether memory still counts on this Frozen.
func (f *Frozen) current() bool {
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	return f.store.flushing == f.table
}

// Release gives up what was not flushed: it goes back behind the memtable, and
// the next Freeze takes it again. After a successful Flush it does nothing.
func (f *Frozen) Release() {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.table == nil || s.flushing != f.table {
		return
	}
	s.flushing = nil
	f.table.Sweep(f.alive, s.alive)
	f.table.Absorb(s.table)
	s.table = f.table
}

// writeSegment writes a file with what fill adds, count entries of seqs within span and rows, and makes it and its name
// in the directory durable. It returns nil when fill added nothing.
func (s *Store) writeSegment(form segment.Form, span SeqRun, count uint64, fill func(w *segment.Writer) error) (*segment.Segment, error) {
	id, path := s.manifest.newSegment()
	w, err := segment.Create(path, form, span.First, span.Last, count)
	if err != nil {
		return nil, err
	}
	if err := fill(w); err != nil || w.Empty() {
		return nil, w.Abort(err)
	}
	record, err := w.Finish()
	if err != nil {
		return nil, w.Abort(err)
	}
	written, err := segment.Open(path, id, record, s.log)
	if err != nil {
		return nil, w.Abort(err)
	}
	if err := disk.SyncDir(s.manifest.segmentsDir()); err != nil {
		written.Doom()
		written.Release()
		return nil, err
	}
	return written, nil
}

// discard removes a segment whose commit failed. When the manifest failed nobody
// knows whether it is named: the file stays, and the next start decides. The
// caller holds manifest.mu.
func (s *Store) discard(written *segment.Segment) {
	if written == nil {
		return
	}
	if s.manifest.err == nil {
		written.Doom()
	}
	written.Release()
}
