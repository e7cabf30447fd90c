package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/fs"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockTimeout is how long a bbolt file may be held by somebody else before that
// is an error. Without one, bbolt waits for ever.
const lockTimeout = time.Second

// A logStore is the Raft log. It remembers whether the last write succeeded: a
// leader whose write fails only steps down, and would try again silently.
type logStore struct {
	raft.LogStore
	closer io.Closer
	fail   func(error) // told why this node cannot go on
	// saved is the entry up to which the schedule on disk stands for the log, and
	// clearing is told of it before the whole log goes.
	saved    func() uint64
	clearing func(saved uint64) error

	mu    sync.Mutex
	err   error
	floor uint64 // entries above it are not cut from the log's beginning
	ended bool   // an end that the schedule does not hold was cut off, and nothing was appended since
}

func openStable(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, stableFile)
	s, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: lockTimeout}})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("node.data_dir: %s is in use by another process: stop it, or give each node a directory of its own", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// logFile returns the file without which a log of this kind is lost.
func logFile(kind string) string {
	if kind == LogBoltDB {
		return "log.db"
	}
	return "wal-meta.db" // of raft-wal
}

func openLog(dir string, cfg Config, fail func(error)) (*logStore, error) {
	dir = filepath.Join(dir, cfg.Log)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	if cfg.Log == LogBoltDB {
		// The array freelist makes every append slower after a truncation.
		options := &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType}
		s, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, logFile(cfg.Log)), BoltOptions: options})
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		return newLogStore(s, s, fail), nil
	}
	s, err := openSegmentLog(dir, cfg.SegmentSize, newHCLogger(cfg.Logger, "raft-wal"), fs.New())
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return newLogStore(s, s, fail), nil
}

// newLogStore returns a log beside which there is no schedule yet.
func newLogStore(s raft.LogStore, c io.Closer, fail func(error)) *logStore {
	return &logStore{
		LogStore: s, closer: c, fail: fail,
		saved: func() uint64 { return 0 }, clearing: func(uint64) error { return nil },
	}
}

func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs may fail and be called again, except after a cut of the log's end: raft
// goes on counting from the old one until the new entries are written, and would
// look for ever for what is not there.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	err := s.LogStore.StoreLogs(logs)
	s.mu.Lock()
	s.err = err
	ended := s.ended
	s.ended = ended && err != nil
	s.mu.Unlock()
	switch {
	case ended && err != nil:
		s.fail(fmt.Errorf("the log's end was cut and what takes its place could not be written: %w: start the node again", err))
	case errors.Is(err, ErrDamaged):
		s.fail(err)
	}
	return err
}

// keepAfter says how far the log's beginning may be cut from now on.
func (s *logStore) keepAfter(floor uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = floor
}

// DeleteRange cuts the beginning as far as keepAfter allows. What reaches to the
// log's end is no such cut: the whole log goes after a received snapshot, and its
// end when it differs from the leader's.
func (s *logStore) DeleteRange(from, to uint64) error {
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
func (s *logStore) cutEnd(from, to uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	saved := s.saved()
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

// failure returns the error of the last write.
func (s *logStore) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// IsMonotonic tells raft to delete the whole log after a received snapshot,
// whichever the store: raft-wal takes no gap, and with the gap that raft would
// otherwise leave between old entries and those after the snapshot, reconcile
// could not tell what the log holds.
func (s *logStore) IsMonotonic() bool { return true }

func (s *logStore) Close() error { return s.closer.Close() }

// reconcile makes the log fit the manifest. A crash after a received snapshot
// was named in the manifest, and before raft deleted the log that it replaces,
// leaves a log that ends below it, or has another history at its index: neither
// may be followed by the next entry.
//
// What the log does not hold must be in the schedule: an entry that is in neither was
// acknowledged, and a node without it could help to elect a leader that lacks it. A
// log that begins later says so itself; of one that was cleared, cleared is what the
// schedule held then.
func (s *logStore) reconcile(m storage.SnapshotMeta, cleared uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if max(m.Index, last) < cleared {
		return fmt.Errorf("%w: the schedule ends at entry %d and the log at %d, and the schedule that it had stood for all up to %d", ErrDamaged, m.Index, last, cleared)
	}
	if last == 0 {
		return nil
	}
	if first > m.Index+1 {
		return fmt.Errorf("%w: the log begins at entry %d and the schedule ends at %d", ErrDamaged, first, m.Index)
	}
	if last >= m.Index {
		if m.Index < first {
			return nil
		}
		var at raft.Log
		if err := s.GetLog(m.Index, &at); err != nil {
			return fmt.Errorf("read log entry %d: %w", m.Index, err)
		}
		if at.Term == m.Term {
			return nil
		}
	}
	if err := s.DeleteRange(first, last); err != nil {
		return fmt.Errorf("clear the log before the snapshot at %d: %w", m.Index, err)
	}
	return nil
}
