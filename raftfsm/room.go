package raftfsm

import (
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/storage"
)

// Room returns nil, or why no message may be accepted now, wrapping ErrNoRoom:
// the disk is down to the reserve, the log or a flush could not be written, or
// flushing is too far behind. It is asked before an Ingest is proposed; acks and
// claims need little and go on, out of the reserve. It becomes nil again by
// itself. Cheap enough for every proposal.
func (n *Node) Room() error {
	if err := n.logs.failure(); err != nil {
		return fmt.Errorf("%w: writing the log to node.data_dir %s failed: %w", ErrNoRoom, n.cfg.DataDir, err)
	}
	if err := n.fsm.backlog.failure(); err != nil {
		return fmt.Errorf("%w: writing the schedule to node.data_dir %s failed: %w", ErrNoRoom, n.cfg.DataDir, err)
	}
	if unsaved := n.fsm.backlog.unsaved(); unsaved > unsavedFlushes*n.cfg.FlushBytes {
		return fmt.Errorf("%w: %d MiB of accepted messages wait for the disk", ErrNoRoom, unsaved>>20)
	}
	free, err := n.store.FreeSpace()
	if err != nil {
		return fmt.Errorf("%w: asking for free space of node.data_dir %s: %w", ErrNoRoom, n.cfg.DataDir, err)
	}
	if reserve := n.reserve(); free < reserve {
		return fmt.Errorf("%w: node.data_dir %s has %d MiB free, %d MiB are kept in reserve: free some space", ErrNoRoom, n.cfg.DataDir, free>>20, reserve>>20)
	}
	return nil
}

// noteReceived keeps why a snapshot from a leader was not received, nil that one
// was or that none is needed. The leader sends it again and again.
func (n *Node) noteReceived(err error) {
	if errors.Is(err, storage.ErrDiskFull) {
		err = fmt.Errorf("this node is too far behind for the log, and the snapshot that the leader sends has no room beside the schedule here, which stays until the new one is whole: %w%s", err, n.cfg.orReplace())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.receiving = err
}

// isShort reports whether the disk is down to the reserve.
func (n *Node) isShort() bool {
	free, err := n.store.FreeSpace()
	return err == nil && free < n.reserve()
}

// reserve is what two flushes and the log between them can take.
func (n *Node) reserve() uint64 {
	return 2*uint64(n.cfg.FlushBytes) + 2*uint64(max(int64(n.cfg.SegmentSize), n.cfg.FlushBytes))
}
