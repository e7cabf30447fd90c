// Package segment has the files that messages lie in: each written once, in order of
// delivery, and never changed. Which of their entries are alive, and which files count,
// is not known here. DESIGN.md has formats and invariants.
package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/name"
	"go.etcd.io/bbolt"
)

// Segment is an immutable file of entries, safe for any goroutine that has a reference.
// It is closed, and unlinked if it is doomed, when the last one lets go.
type Segment struct {
	Record
	ID   uint64
	Path string
	db   *bbolt.DB
	refs atomic.Int32
	// doomed is set before the manifest lets go: nothing names the file.
	doomed  atomic.Bool
	log     *slog.Logger
	filters name.Filters // of the ids that have a row
	passed  passed       // of these, rows that need no look any more
	survey  survey
}

// Open opens the file that record describes, with one reference. All but its chunks is
// checked. The error wraps codec.ErrCorrupt when it is not the file that was written.
func Open(path string, id uint64, record Record, log *slog.Logger) (*Segment, error) {
	stat, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, codec.DamageAt(path, -1, "the segment is missing; restore the node from the others")
	}
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	if stat.Size() != record.Size {
		return nil, codec.DamageAt(path, -1, "the segment has %d bytes, was written with %d", stat.Size(), record.Size)
	}
	s := &Segment{Record: record, ID: id, Path: path, log: log}
	s.refs.Store(1)
	if s.db, err = disk.OpenBolt(path, &bbolt.Options{ReadOnly: true, Timeout: time.Second, NoStatistics: true}); err != nil {
		return nil, fmt.Errorf("open segment %s: %w", path, err)
	}
	if err := s.checkFrame(); err != nil {
		return nil, fmt.Errorf("open segment %s: %w", path, errors.Join(err, s.db.Close()))
	}
	return s, nil
}

// checkFrame compares all but the chunks with the record. It reads a page per
// 16 MB of segment.
func (s *Segment) checkFrame() error {
	pages, err := openPages(s.db)
	if err != nil {
		return err
	}
	defer pages.close()
	sum, err := pages.checksum(s.Branches)
	if err != nil {
		return err
	}
	if sum != s.CRC {
		at := int64(-1)
		if len(s.Branches) > 0 {
			at = int64(s.Branches[0] * pages.size)
		}
		return codec.DamageAt(s.Path, at, "branch pages %d have checksum %08x, written with %08x", s.Branches, sum, s.CRC)
	}
	return s.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(infoBucket)
		for _, wanted := range append(s.Info.Form.buckets(), infoBucket) {
			if tx.Bucket(wanted) == nil {
				return fmt.Errorf("%w: no bucket %q", codec.ErrCorrupt, wanted)
			}
		}
		sealed, err := codec.Open("segment info", newestInfo, bucket.Get(infoKey))
		if err != nil {
			return err
		}
		info, err := decodeInfo(sealed)
		if err != nil {
			return err
		}
		if info != s.Info {
			return fmt.Errorf("%w: file holds %+v, the manifest names %+v", codec.ErrCorrupt, info, s.Info)
		}
		return s.readFilters(tx, pages.file)
	})
}

// view runs read in a transaction of the file. The transaction may be long: the
// file never changes.
func (s *Segment) view(read func(tx *bbolt.Tx) error) error {
	return disk.Guard(func() error { return s.db.View(read) })
}

// acquire adds a reference.
func (s *Segment) acquire() { s.refs.Add(1) }

// Release gives one back. The last one closes the file.
func (s *Segment) Release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	if err := s.db.Close(); err != nil {
		s.log.Error("close segment", "path", s.Path, "error", err)
	}
	if !s.doomed.Load() {
		return
	}
	// Should the name outlive a crash, the next start finds it unnamed.
	if err := os.Remove(s.Path); err != nil {
		s.log.Error("remove segment", "path", s.Path, "error", err)
	}
}

// Doom has the file unlinked at the last release: nothing names it any more.
func (s *Segment) Doom() { s.doomed.Store(true) }

// Holds reports whether the segment answers for seq.
func (s *Segment) Holds(seq uint64) bool { return s.Info.First <= seq && seq <= s.Info.Last }

// AcquireAll adds a reference to each.
func AcquireAll(segments []*Segment) {
	for _, s := range segments {
		s.acquire()
	}
}

// ReleaseAll gives one of each back.
func ReleaseAll(segments []*Segment) {
	for _, s := range segments {
		s.Release()
	}
}

// Verify reads the segment from end to end, compares it with its record and its entries with
// the rows of ids and the survey, shows each of its entries that is in the set to visit (nil: to
// nobody), and returns how many there are. What visit is shown is good until it returns.
func (s *Segment) Verify(set *alive.Set, visit func(*Entry)) (found uint64, err error) {
	seen := alive.NewSet()
	picks := newSurveyor(s.Info.Form, s.Info.Count)
	var ids idSum
	err = disk.Guard(func() error {
		c, err := s.Cursor(true)
		if err != nil {
			return err
		}
		defer c.Close()
		got := s.Info
		got.Count, got.Bodies, got.Max = 0, 0, Ref{}
		e, err := c.Start(s.Info.Min)
		if e != nil {
			got.Min = e.Ref()
		}
		for ; e != nil && err == nil; e, err = c.Next() {
			if !s.Holds(e.Seq) || !seen.Add(e.Seq) {
				return c.damaged(c.value, fmt.Errorf("%w: entry %v is there twice, or out of the segment's seqs %d to %d", codec.ErrCorrupt, e.Ref(), s.Info.First, s.Info.Last))
			}
			got.Count, got.Bodies, got.Max = got.Count+1, got.Bodies+int64(len(e.Body)), e.Ref()
			picks.add(e)
			if e.ID != "" {
				ids.add(&name.Row{Hash: name.Of(e.Topic, e.ID), Seq: e.Seq, Due: e.Due, Expires: e.Expires, Target: e.Target})
			}
			if set.Contains(e.Seq) {
				found++
				if visit != nil {
					visit(e)
				}
			}
		}
		if err != nil {
			return err
		}
		if got != s.Info || c.loads != int(s.Info.Chunks) {
			return codec.DamageAt(s.Path, -1, "the segment holds %+v, was written with %+v", got, s.Info)
		}
		return errors.Join(s.verifyRows(ids), picks.verify(s))
	})
	return found, err
}
