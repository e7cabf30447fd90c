package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"go.etcd.io/bbolt"
)

// segment is an immutable file of entries. It is closed, and unlinked if the
// manifest names it no longer, when the last one that reads it lets go.
type segment struct {
	segmentRecord
	id   uint64
	path string
	db   *bbolt.DB
	refs atomic.Int32
	// doomed is set before the manifest lets go: nothing names the file.
	doomed atomic.Bool
	log    *slog.Logger

	// Guarded by Store.merging.
	sample  sample // nil until a merge needs it
	damaged bool   // a merge found it so
}

// openSegment opens the file that record describes, with one reference.
func openSegment(path string, id uint64, record segmentRecord, log *slog.Logger) (*segment, error) {
	stat, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: segment %s is missing; restore the node from the others", ErrCorrupt, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	if stat.Size() != record.size {
		return nil, fmt.Errorf("%w: segment %s has %d bytes, was written with %d", ErrCorrupt, path, stat.Size(), record.size)
	}
	s := &segment{segmentRecord: record, id: id, path: path, log: log}
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
func (s *segment) checkFrame() error {
	pages, err := openPages(s.db)
	if err != nil {
		return err
	}
	defer pages.close()
	sum, err := pages.checksum(s.branches)
	if err != nil {
		return err
	}
	if sum != s.crc {
		return fmt.Errorf("%w: branch pages have checksum %08x, written with %08x", ErrCorrupt, sum, s.crc)
	}
	return s.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(infoBucket)
		if bucket == nil || tx.Bucket(chunksBucket) == nil {
			return fmt.Errorf("%w: no bucket %q or %q", ErrCorrupt, infoBucket, chunksBucket)
		}
		sealed, err := codec.Open("segment info", newestSegmentInfo, bucket.Get(infoKey))
		if err != nil {
			return err
		}
		info, err := decodeSegmentInfo(sealed)
		if err != nil {
			return err
		}
		if info != s.info {
			return fmt.Errorf("%w: file holds %+v, the manifest names %+v", ErrCorrupt, info, s.info)
		}
		return nil
	})
}

// view runs read in a transaction of the file. The transaction may be long: the
// file never changes.
func (s *segment) view(read func(tx *bbolt.Tx) error) error {
	return disk.Guard(func() error { return s.db.View(read) })
}

func (s *segment) acquire() { s.refs.Add(1) }

func (s *segment) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	if err := s.db.Close(); err != nil {
		s.log.Error("close segment", "path", s.path, "error", err)
	}
	if !s.doomed.Load() {
		return
	}
	// Should the name outlive a crash, the next start finds it unnamed.
	if err := os.Remove(s.path); err != nil {
		s.log.Error("remove segment", "path", s.path, "error", err)
	}
}

// holds reports whether the segment answers for seq.
func (s *segment) holds(seq uint64) bool { return s.info.first <= seq && seq <= s.info.last }

func acquireAll(segments []*segment) {
	for _, s := range segments {
		s.acquire()
	}
}

func releaseAll(segments []*segment) {
	for _, s := range segments {
		s.release()
	}
}
