package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/merge"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
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
}

// copyMemory pins the segments. Writers wait while it copies.
func (s *Store) copyMemory() memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := memory{values: s.values.clone(), alive: s.alive.Freeze(), outcomes: s.outcomes.Freeze(), segments: s.segments}
	segment.AcquireAll(m.segments)
	for _, t := range s.tables() {
		var all merge.Slice
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
		var merged merge.Heap
		for _, t := range slices.Clone(m.tables) {
			if e, ok, _ := t.Next(); ok {
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
	if err != nil {
		return [32]byte{}, fmt.Errorf("digest: %w", err)
	}
	return [32]byte(sum.Sum(nil)), nil
}

// Damage is one thing in a file that is not as it was written.
type Damage = codec.Damage

// An Inspection is what Inspect has found.
type Inspection struct {
	Empty bool // there is no manifest, and nothing that one had named

	Meta     SnapshotMeta // the log entry that all below is as of
	State    State        // without the claim's holds
	Holds    int
	NextDue  int64 // of the first message that is pending, epoch milliseconds; 0 when none is
	Segments []InspectedSegment
	Alive    string // file of the alive-set, "" where the manifest holds it

	Outcomes      uint64
	OutcomesSince int64 // all that has ended from then on is known, epoch milliseconds; 0: nothing was forgotten

	LeftOver []string // files that the manifest does not name; the next start removes those of ours
	Damages  []Damage
}

// An InspectedSegment is a segment that the manifest names.
type InspectedSegment struct {
	File           string
	Bytes          int64
	First, Last    uint64 // the seqs that it answers for
	Entries, Alive uint64
}

// Inspect checks the schedule in a directory that no store has open, as Open and
// Store.Check do, and goes on where those would end. It writes nothing. The error says
// why it could not be checked: ErrInUse, ErrVersion, or the system's.
func Inspect(dir string) (*Inspection, error) {
	i := inspector{
		manifest: manifest{dir: dir, sets: alive.Dir{Path: filepath.Join(dir, aliveName)}, log: slog.New(slog.DiscardHandler)},
		found:    new(Inspection),
	}
	if err := i.inspect(); err != nil {
		return nil, fmt.Errorf("inspect schedule: %w", err)
	}
	return i.found, nil
}

type inspector struct {
	manifest manifest // nothing is written through it
	found    *Inspection
}

func (i *inspector) inspect() error {
	named, records, err := i.readManifest()
	if err == nil {
		err = i.checkNamed(&named, records)
	}
	if err := i.note(err); err != nil {
		return err
	}
	return i.findLeftOver()
}

// note takes the place of a damage down, and gives back any other error.
func (i *inspector) note(err error) error {
	var damage *codec.Damage
	switch {
	case errors.As(err, &damage):
		i.found.Damages = append(i.found.Damages, *damage)
	case errors.Is(err, ErrCorrupt):
		i.found.Damages = append(i.found.Damages, Damage{File: i.manifest.path(), Offset: -1, Err: err})
	default:
		return err
	}
	return nil
}

// readManifest reads what the manifest names. What is not there has no manifest either.
func (i *inspector) readManifest() (c contents, records segmentRecords, err error) {
	m := &i.manifest
	stat, err := os.Stat(m.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		i.found.Empty = true
		return emptyContents(), records, m.refuseOrphans()
	case err != nil:
		return c, records, err
	case stat.Size() == 0: // bbolt would begin it anew
		return c, records, codec.DamageAt(m.path(), -1, "the file is empty")
	}
	if m.db, err = disk.OpenCheckedBolt(m.path(), 1, &bbolt.Options{ReadOnly: true, Timeout: time.Second, NoStatistics: true}); err != nil {
		return c, records, err
	}
	if c, records, err = m.read(); err == nil {
		c.outcomes, err = m.readOutcomes(c.level())
		err = i.note(err)
	}
	return c, records, errors.Join(err, m.db.Close())
}

// checkNamed reads all that the manifest names, and compares it.
func (i *inspector) checkNamed(named *contents, records segmentRecords) error {
	v, err := named.values()
	if err != nil {
		return err
	}
	if named.stored.ID != 0 {
		i.found.Alive = i.manifest.sets.PathOf(named.stored.ID)
		if named.alive, err = i.manifest.sets.Load(named.stored); err != nil {
			if err := i.note(err); err != nil {
				return err
			}
			named.alive = nil
		}
	}
	i.describe(named, &v, records)
	for n, id := range records.ids {
		if err := i.note(i.checkSegment(named, &v, id, records.records[n])); err != nil {
			return err
		}
	}
	if named.alive == nil { // it is unknown which are to be there
		return nil
	}
	var infos []segment.Info
	for _, r := range records.records {
		infos = append(infos, r.Info)
	}
	slices.SortFunc(infos, func(a, b segment.Info) int { return a.Compare(&b) })
	return checkRanges(named.alive, v.nextSeq, slices.Values(infos))
}

func (i *inspector) describe(named *contents, v *values, records segmentRecords) {
	i.found.Meta, i.found.Holds = named.meta, v.holds.len()
	if named.outcomes != nil {
		i.found.Outcomes, i.found.OutcomesSince = named.outcomes.Count(), named.outcomes.Since()
	}
	pending := uint64(0)
	if named.alive != nil {
		pending = named.alive.Count()
	}
	i.found.State = v.state(pending)
	for n, id := range records.ids {
		r := &records.records[n]
		s := InspectedSegment{File: i.manifest.segmentPath(id), Bytes: r.Size, First: r.Info.First, Last: r.Info.Last, Entries: r.Info.Count}
		if named.alive != nil {
			s.Alive = named.alive.CountRange(s.First, s.Last)
		}
		i.found.Segments = append(i.found.Segments, s)
	}
}

// checkSegment reads a segment from end to end.
func (i *inspector) checkSegment(named *contents, v *values, id uint64, record segment.Record) error {
	path := i.manifest.segmentPath(id)
	g, err := segment.Open(path, id, record, i.manifest.log)
	if err == nil {
		defer g.Release()
		check := contents{alive: named.alive}
		if named.alive == nil {
			check.alive = alive.NewSet()
		}
		var passed *Entry
		err = check.verifySegment(g, func(e *Entry) {
			if i.found.NextDue == 0 || e.Due < i.found.NextDue {
				i.found.NextDue = e.Due
			}
			if passed == nil && e.Ref().Less(v.markOf(e)) {
				passed = &Entry{Due: e.Due, Seq: e.Seq, Target: e.Target, Topic: e.Topic}
			}
		})
		if err == nil && passed != nil {
			err = codec.DamageAt(i.manifest.path(), -1, "message %v of %s waits before the mark %v, where reading begins", passed.Ref(), passed.Target, v.markOf(passed))
		}
	}
	var damage *codec.Damage
	if errors.Is(err, ErrCorrupt) && !errors.As(err, &damage) { // bbolt's own, which names no file
		return &codec.Damage{File: path, Offset: -1, Err: err}
	}
	return err
}

// findLeftOver lists what the manifest does not name.
func (i *inspector) findLeftOver() error {
	m := &i.manifest
	named := []string{i.found.Alive}
	for _, s := range i.found.Segments {
		named = append(named, s.File)
	}
	for _, dir := range []string{m.dir, m.segmentsDir(), m.sets.Path} {
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, f := range files {
			path := filepath.Join(dir, f.Name())
			if !f.IsDir() && path != m.path() && !slices.Contains(named, path) {
				i.found.LeftOver = append(i.found.LeftOver, path)
			}
		}
	}
	return nil
}
