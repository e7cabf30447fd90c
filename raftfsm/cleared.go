package raftfsm

import (
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/storage"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// clearedKey is beside term and vote in stable.db: how far the schedule went when the
// whole log was cleared, 8 bytes, big endian. From then on an empty log says nothing
// of what this node has acknowledged, and neither does a schedule that is lost with it.
// It may be written from storage.LevelTwo on; older programs do not look at it.
var clearedKey = []byte("LogClearedAt")

// noteCleared is called before the log is cleared. A received snapshot is loaded then,
// so that the level is that of what it brought.
func (n *Node) noteCleared(saved uint64) error {
	if n.store.Level() < storage.LevelTwo {
		return nil
	}
	if err := n.stable.SetUint64(clearedKey, saved); err != nil {
		return fmt.Errorf("note in %s that the log is cleared: %w", stableFile, err)
	}
	return nil
}

// reconcile makes the log fit the schedule, or says what is lost and what to do.
func (n *Node) reconcile() error {
	cleared, err := n.stable.GetUint64(clearedKey)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return fmt.Errorf("read %s: %w", stableFile, err)
	}
	err = n.logs.reconcile(n.store.ManifestMeta(), cleared)
	if errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: node.data_dir %s has lost its %s, or has an older one: restore it%s", err, n.cfg.DataDir, scheduleDir, n.cfg.orReplace())
	}
	return err
}
