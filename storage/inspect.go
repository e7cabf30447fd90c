package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
	"go.etcd.io/bbolt"
)

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

	Bulks []bulk.Operation // on many messages, the newest first

	LeftOver []string // files that the manifest does not name; the next start removes those of ours
	Damages  []Damage
}

// An InspectedSegment is a segment that the manifest names.
type InspectedSegment struct {
	File           string
	Bytes          int64
	First, Last    uint64 // the seqs that it answers for
	Entries, Alive uint64
	IDs            uint64 // that can be looked up in it
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
	i.found.State, i.found.Bulks = v.state(pending), v.bulks.All()
	for n, id := range records.ids {
		r := &records.records[n]
		s := InspectedSegment{File: i.manifest.segmentPath(id), Bytes: r.Size, First: r.Info.First, Last: r.Info.Last, Entries: r.Info.Count, IDs: r.Info.Rows}
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
