package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"
)

// lockTimeout is how long a bbolt file may be held by somebody else before that
// is an error. Without one, bbolt waits for ever.
const lockTimeout = time.Second

// The two stores that can hold the Raft log.
const (
	WAL    = "wal"    // hashicorp/raft-wal: the default, three times as fast
	BoltDB = "boltdb" // raft-boltdb: the conservative choice
)

// A Store is the Raft log, of either kind. It remembers whether the last write
// succeeded: a leader whose write fails only steps down, and would try again silently.
type Store struct {
	raft.LogStore
	closer io.Closer
	fail   func(error) // told why this node cannot go on
	// saved is the entry up to which the schedule on disk stands for the log, and
	// clearing is told of it before the whole log goes.
	saved    func() (index, term uint64)
	clearing func(saved uint64) error
	level    func() storage.Level

	mu    sync.Mutex
	err   error
	floor uint64 // entries above it are not cut from the log's beginning
	ended bool   // an end that the schedule does not hold was cut off, and nothing was appended since
}

// File returns the file without which a log of this kind is lost.
func File(kind string) string {
	if kind == BoltDB {
		return "log.db"
	}
	return "wal-meta.db" // of raft-wal
}

// Config is what a log is opened with.
type Config struct {
	Dir         string // of all that Raft keeps; the log has a folder of its kind in it
	Kind        string // WAL or BoltDB
	SegmentSize int    // bytes of one file of WAL
	// Files are those of WAL's segments; nil: the file system's.
	Files  types.VFS
	Logger hclog.Logger
	Fail   func(error) // told why this node cannot go on
}

// Open opens the log, or makes an empty one.
func Open(cfg Config) (*Store, error) {
	dir := filepath.Join(cfg.Dir, cfg.Kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	if cfg.Kind == BoltDB {
		path := filepath.Join(dir, File(BoltDB))
		if err := makeBolt(path); err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		if err := checkBolt(path); err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		// The array freelist makes every append slower after a truncation.
		options := &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType}
		s, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		if err := checkEntries(s); err != nil {
			return nil, fmt.Errorf("open log: %w", errors.Join(damaged(err), s.Close()))
		}
		return newStore(s, s, cfg.Fail), nil
	}
	files := cfg.Files
	if files == nil {
		files = fs.New()
	}
	s, err := openSegmentLog(dir, cfg.SegmentSize, cfg.Logger, files)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return newStore(s, s, cfg.Fail), nil
}

// checkEntries reads a log from end to end: raft panics at an entry that it cannot read.
func checkEntries(s *raftboltdb.BoltStore) error {
	return disk.Guard(func() error {
		first, err := s.FirstIndex()
		if err != nil {
			return err
		}
		last, err := s.LastIndex()
		if err != nil {
			return err
		}
		for index := first; index <= last && last > 0; index++ {
			var e raft.Log
			if err = s.GetLog(index, &e); err == nil {
				err = checkSum(&e)
			}
			if err == nil && e.Index != index {
				err = fmt.Errorf("it is entry %d", e.Index)
			}
			if err != nil {
				return codec.DamageAt(File(BoltDB), -1, "entry %d: %w", index, err)
			}
		}
		return nil
	})
}

// newStore returns a log beside which there is no schedule yet.
func newStore(s raft.LogStore, c io.Closer, fail func(error)) *Store {
	return &Store{
		LogStore: s, closer: c, fail: fail,
		saved: func() (index, term uint64) { return 0, 0 }, clearing: func(uint64) error { return nil },
		level: func() storage.Level { return storage.LevelOne },
	}
}

// StoreLog is StoreLogs of one.
func (s *Store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs may fail and be called again, except after a cut of the log's end: raft
// goes on counting from the old one until the new entries are written, and would
// look for ever for what is not there.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if s.level() >= storage.LevelTwo {
		logs = withSums(logs)
	}
	err := s.LogStore.StoreLogs(logs)
	s.mu.Lock()
	s.err = err
	ended := s.ended
	s.ended = ended && err != nil
	s.mu.Unlock()
	switch {
	case ended && err != nil:
		s.fail(fmt.Errorf("the log's end was cut and what takes its place could not be written: %w: start the node again", err))
	case errors.Is(err, raftfsm.ErrDamaged):
		s.fail(err)
	}
	return err
}

// End returns the index and the term of the last entry, zeros when there is none.
func (s *Store) End() (index, term uint64, err error) {
	index, err = s.LastIndex()
	if err != nil || index == 0 {
		return 0, 0, err
	}
	var last raft.Log
	if err := s.GetLog(index, &last); err != nil {
		return 0, 0, fmt.Errorf("read log entry %d: %w", index, err)
	}
	return index, last.Term, nil
}

// GetLog stops the node at an entry that is not as it was written: it must neither be
// applied nor sent.
func (s *Store) GetLog(index uint64, l *raft.Log) error {
	if err := s.LogStore.GetLog(index, l); err != nil {
		return err
	}
	if err := checkSum(l); err != nil {
		err = damaged(fmt.Errorf("read log entry %d: %w", index, err))
		s.fail(err)
		return err
	}
	return nil
}

// withSums returns entries as they are written from storage.LevelTwo on: a checksum
// stands in what raft calls extensions, CRC-32C over all else of an entry, 4 bytes, big
// endian. It is ours alone: who reads an entry does not see it, and neither do the
// other members. Older programs do not look at it.
func withSums(logs []*raft.Log) []*raft.Log {
	all := make([]*raft.Log, len(logs))
	for i, l := range logs {
		sealed := *l
		sealed.Extensions = binary.BigEndian.AppendUint32(nil, sumOf(l))
		all[i] = &sealed
	}
	return all
}

func sumOf(l *raft.Log) uint32 {
	head := binary.BigEndian.AppendUint64(nil, l.Index)
	head = binary.BigEndian.AppendUint64(head, l.Term)
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(append(head, byte(l.Type)), table), table, l.Data)
}

// checkSum compares an entry with its checksum, if it has one, and takes that away.
func checkSum(l *raft.Log) error {
	if len(l.Extensions) == 0 {
		return nil
	}
	want := l.Extensions
	l.Extensions = nil
	if got := binary.BigEndian.AppendUint32(nil, sumOf(l)); !bytes.Equal(got, want) {
		return fmt.Errorf("%w: entry of term %d has checksum %x, written with %x", codec.ErrCorrupt, l.Term, got, want)
	}
	return nil
}

// KeepAfter says how far the log's beginning may be cut from now on.
func (s *Store) KeepAfter(floor uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = floor
}

// DeleteRange cuts the beginning as far as KeepAfter allows. What reaches to the
// log's end is no such cut: the whole log goes after a received snapshot, and its
// end when it differs from the leader's.
func (s *Store) DeleteRange(from, to uint64) error {
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if to >= last {
		return s.cutEnd(from, to)
	}
	s.mu.Lock()
	to = min(to, s.floor)
	s.mu.Unlock()
	if to < from {
		return nil
	}
	return s.LogStore.DeleteRange(from, to)
}

// cutEnd stops the node when it fails: raft does not try again to clear a log that
// a snapshot has replaced, and what was cut half way is known to a start only.
func (s *Store) cutEnd(from, to uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	saved, _ := s.saved()
	if from <= first {
		err = s.clearing(saved)
	}
	if err == nil {
		err = s.LogStore.DeleteRange(from, to)
	}
	if err != nil {
		s.fail(fmt.Errorf("cut the log's end from entry %d: %w: start the node again", from, err))
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = to > saved
	return nil
}

// Failure returns the error of the last write.
func (s *Store) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// IsMonotonic tells raft to delete the whole log after a received snapshot,
// whichever the store: raft-wal takes no gap, and with the gap that raft would
// otherwise leave between old entries and those after the snapshot, Reconcile
// could not tell what the log holds.
func (s *Store) IsMonotonic() bool { return true }

// Close closes the files.
func (s *Store) Close() error { return s.closer.Close() }
