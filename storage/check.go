package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/merge"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
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
	if err := s.manifest.checkOutcomes(); err != nil {
		return fmt.Errorf("check outcomes: %w", err)
	}
	m := s.copyMemory()
	defer segment.ReleaseAll(m.segments)
	if err := m.check(); err != nil {
		return fmt.Errorf("check memory: %w", err)
	}
	if err := s.checkNames(); err != nil {
		return fmt.Errorf("check names in memory: %w", err)
	}
	return nil
}

// checkNames finds every entry of the memtables by its id, where what comes first is newer.
func (s *Store) checkNames() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.tables() {
		if err := t.Check(); err != nil {
			return err
		}
	}
	return nil
}

// checkOutcomes compares those on disk with what is said to be there.
func (m *manifest) checkOutcomes() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	read, err := m.readOutcomes(m.current.level())
	if err != nil {
		return err
	}
	got, want := sha256.New(), sha256.New()
	read.Sum(got)
	m.current.outcomes.Sum(want)
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return fmt.Errorf("%w: %d of the outcomes are on disk, %d were written, or others", ErrCorrupt, read.Count(), m.current.outcomes.Count())
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
		if err := c.verifySegment(g, nil); err != nil {
			return err
		}
	}
	return nil
}

// verifySegment shows visit the alive ones.
func (c *contents) verifySegment(g *segment.Segment, visit func(*Entry)) error {
	found, err := g.Verify(c.alive, visit)
	if err != nil {
		return err
	}
	if n := c.alive.CountRange(g.Info.First, g.Info.Last); found != n {
		return codec.DamageAt(g.Path, -1, "%d of the seqs %d to %d are alive, the segment has %d of them", n, g.Info.First, g.Info.Last, found)
	}
	return nil
}

// memory is a copy of what readers see at one moment, for those that look at all
// of it. Bodies are shared.
type memory struct {
	values   values
	alive    *alive.Set
	outcomes *outcomes.Frozen
	tables   []merge.Slice
	spans    []SeqRun // the seqs of each table
	segments []*segment.Segment
	foreign  map[uint64]name.Row // what the tables know of messages elsewhere, by seq
}

// copyMemory pins the segments. Writers wait while it copies.
func (s *Store) copyMemory() memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := memory{values: s.values.clone(), alive: s.alive.Freeze(), outcomes: s.outcomes.Freeze(), segments: s.segments, foreign: make(map[uint64]name.Row)}
	segment.AcquireAll(m.segments)
	for _, t := range s.tables() {
		var all merge.Slice
		for e := range t.All {
			all = append(all, e)
		}
		m.tables = append(m.tables, all)
		for _, r := range t.Foreign() {
			m.foreign[r.Seq] = r
		}
		m.spans = append(m.spans, SeqRun{t.First(), t.Next() - 1})
	}
	return m
}

// each calls visit for every entry that is alive, in order of delivery; the body
// is only good during the call.
func (m *memory) each(visit func(*Entry) error) error {
	return disk.Guard(func() error {
		var merged merge.Heap
		for _, t := range slices.Clone(m.tables) {
			if e, _ := t.Next(); e != nil {
				merged.Add(e, &t)
			}
		}
		for _, g := range m.segments {
			c, err := g.Cursor(true)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := merged.Start(c, g.Info.Min); err != nil {
				return err
			}
		}
		for !merged.Empty() {
			if e := merged.Peek(); m.alive.Contains(e.Seq) {
				if err := visit(e); err != nil {
					return err
				}
			}
			if err := merged.Skip(); err != nil {
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

// Digest hashes the logical content: the replicated values, the outcomes that are known, and
// every message alive, in order, body included. It is equal on all nodes that have applied the
// same log, whatever each has flushed or merged; the applied index itself is not
// part of it. It reads everything; Apply waits while the memtables are copied. It
// is for tests.
func (s *Store) Digest() ([32]byte, error) {
	m := s.copyMemory()
	defer segment.ReleaseAll(m.segments)
	sum := sha256.New()
	sum.Write(encodeValues(&m.values).Payload)
	if m.values.level >= LevelThree {
		m.outcomes.Sum(sum)
	}
	var buf []byte
	err := m.each(func(e *Entry) error {
		buf = segment.AppendKey(buf[:0], e.Ref())
		buf = codec.AppendString(buf, e.Target)
		if m.values.level >= LevelThree {
			buf = codec.AppendString(buf, e.Topic)
			buf = codec.AppendString(buf, e.ID)
			buf = binary.AppendVarint(buf, e.Expires)
		}
		length := uint64(0)
		if e.Body != nil {
			length = uint64(len(e.Body)) + 1
		}
		buf = binary.AppendUvarint(buf, length)
		sum.Write(buf)
		sum.Write(e.Body)
		return nil
	})
	if err == nil {
		err = m.eachForeign(func(r *name.Row) {
			key := r.Key()
			buf = segment.AppendRef(append(buf[:0], key[:]...), Ref{Due: r.Due})
			buf = binary.AppendVarint(buf, r.Expires)
			sum.Write(codec.AppendString(buf, r.Target))
		})
	}
	if err != nil {
		return [32]byte{}, fmt.Errorf("digest: %w", err)
	}
	return [32]byte(sum.Sum(nil)), nil
}

// eachForeign calls visit for what is known by its id though its entry does not tell it, in order
// of seq. Which file or table knows it, and how many do, is each node's own business.
func (m *memory) eachForeign(visit func(*name.Row)) error {
	all := maps.Clone(m.foreign)
	for _, g := range m.segments {
		if g.Info.Foreign == 0 {
			continue
		}
		err := merge.Rows(context.Background(), []*segment.Segment{g}, m.alive, func(r *name.Row) error {
			if r.Foreign {
				all[r.Seq] = *r
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(all)) {
		if r := all[seq]; m.alive.Contains(seq) {
			visit(&r)
		}
	}
	return nil
}
