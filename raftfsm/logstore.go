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
	wal "github.com/hashicorp/raft-wal"
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

	mu    sync.Mutex
	err   error
	floor uint64 // entries above it are not cut from the log's beginning
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

func openLog(dir string, cfg Config) (*logStore, error) {
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
		return &logStore{LogStore: s, closer: s}, nil
	}
	logger := newHCLogger(cfg.Logger, "raft-wal")
	w, err := wal.Open(dir, wal.WithLogger(logger), wal.WithSegmentSize(cfg.SegmentSize), wal.WithMetaStore(&walMeta{logger: logger}))
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &logStore{LogStore: w, closer: w}, nil
}

func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *logStore) StoreLogs(logs []*raft.Log) error {
	err := s.LogStore.StoreLogs(logs)
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
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
	if to < last {
		s.mu.Lock()
		to = min(to, s.floor)
		s.mu.Unlock()
		if to < from {
			return nil
		}
	}
	return s.LogStore.DeleteRange(from, to)
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
func (s *logStore) reconcile(m storage.SnapshotMeta) error {
	first, err := s.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if last == 0 {
		return nil
	}
	if first > m.Index+1 {
		return fmt.Errorf("%w: the log begins at entry %d and the schedule ends at %d: empty node.data_dir and run `carillon cluster replace`", ErrDamaged, first, m.Index)
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
