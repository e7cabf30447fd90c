package raftlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// StableFile holds term and vote, and is the lock of the directory.
const StableFile = "stable.db"

// clearedKey is beside term and vote in stable.db: how far the schedule went when the
// whole log was cleared, 8 bytes, big endian. From then on an empty log says nothing
// of what this node has acknowledged, and neither does a schedule that is lost with it.
// It may be written from storage.LevelTwo on; older programs do not look at it.
var clearedKey = []byte("LogClearedAt")

// OpenStable opens the file in which Raft keeps its term and vote.
func OpenStable(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, StableFile)
	var s *raftboltdb.BoltStore
	err := checkBolt(path)
	if err == nil {
		s, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: lockTimeout}})
	}
	if errors.Is(err, berrors.ErrTimeout) || errors.Is(err, storage.ErrInUse) {
		return nil, fmt.Errorf("node.data_dir: %s is in use by another process: stop it, or give each node a directory of its own", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// checkBolt checks the frame of a bbolt file, which is closed. bbolt would go back to the
// commit before where the last meta page is damaged: to another vote, or another list of
// segments. What is not there, or empty, was about to be made; where it must be there is
// known to package member.
func checkBolt(path string) error {
	stat, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && stat.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := disk.OpenCheckedBolt(path, 2, readOnly())
	if err != nil {
		return damaged(err)
	}
	return db.Close()
}

// A Schedule is the schedule beside a log, which stands for all that the log has
// lost at its beginning.
type Schedule interface {
	ManifestMeta() storage.SnapshotMeta
	Level() storage.Level
}

// Reconcile says which schedule stands for the log from now on, and makes the log fit
// it, or says in raftfsm.ErrDamaged what is lost. When the log is cleared, that is
// noted in stable. A received snapshot is loaded by then, so the level is that of what
// it brought.
func (s *Store) Reconcile(schedule Schedule, stable raft.StableStore) error {
	s.saved = func() uint64 { return schedule.ManifestMeta().Index }
	s.clearing = func(saved uint64) error {
		if schedule.Level() < storage.LevelTwo {
			return nil
		}
		if err := stable.SetUint64(clearedKey, saved); err != nil {
			return fmt.Errorf("note in %s that the log is cleared: %w", StableFile, err)
		}
		return nil
	}
	cleared, err := stable.GetUint64(clearedKey)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return fmt.Errorf("read %s: %w", StableFile, err)
	}
	return s.reconcile(schedule.ManifestMeta(), cleared)
}

// Fits returns raftfsm.ErrDamaged when a schedule does not stand for what a log lacks at its
// beginning. cleared is how far the schedule went when the log was cleared last.
func Fits(m storage.SnapshotMeta, first, last, cleared uint64) error {
	if max(m.Index, last) < cleared {
		return fmt.Errorf("%w: the schedule ends at entry %d and the log at %d, and the schedule that it had stood for all up to %d", raftfsm.ErrDamaged, m.Index, last, cleared)
	}
	if last > 0 && first > m.Index+1 {
		return fmt.Errorf("%w: the log begins at entry %d and the schedule ends at %d", raftfsm.ErrDamaged, first, m.Index)
	}
	return nil
}

// reconcile makes the log fit the manifest. A crash after a received snapshot
// was named in the manifest, and before raft deleted the log that it replaces,
// leaves a log that ends below it, or has another history at its index: neither
// may be followed by the next entry.
//
// What the log does not hold must be in the schedule: an entry that is in neither was
// acknowledged, and a node without it could help to elect a leader that lacks it. A
// log that begins later says so itself; of one that was cleared, cleared is what the
// schedule held then.
func (s *Store) reconcile(m storage.SnapshotMeta, cleared uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if err := Fits(m, first, last, cleared); err != nil || last == 0 {
		return err
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
