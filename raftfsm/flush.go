package raftfsm

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

const flushRetry = time.Second

// slowFollowerFlushes is for how many flushes the log is kept for a follower
// that answers but is behind; then it gets a snapshot.
const slowFollowerFlushes = 8

// flushLoop is the only caller of raft.Snapshot: when enough log has gathered,
// or enough time has passed since something was applied. One that raft puts off,
// because a change of members is not committed yet, or that fails is tried again
// until it succeeds; Room tells of the latter.
func (n *Node) flushLoop(ctx context.Context, r *raft.Raft) {
	ticker := time.NewTicker(n.cfg.FlushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.fsm.flushDue:
		case <-ticker.C:
			if n.fsm.unsaved.Load() == 0 {
				continue
			}
		}
		for err := n.flush(r); err != nil && ctx.Err() == nil; err = n.flush(r) {
			n.log.Warn("not flushed, trying again", "err", err, "retry_in", flushRetry)
			pause(ctx, flushRetry)
		}
		select {
		case n.flushed <- struct{}{}:
		default:
		}
	}
}

func (n *Node) flush(r *raft.Raft) error {
	n.retention.set(n.keep(r))
	err := r.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// keep returns how many entries to leave behind the snapshot: those since the
// last one, and more for followers that are on their way.
func (n *Node) keep(r *raft.Raft) uint64 {
	last, since := r.LastIndex(), n.store.ManifestMeta().Index
	if since >= last {
		return 0
	}
	keep := last - since
	if r.State() != raft.Leader {
		return keep
	}
	most := keep * slowFollowerFlushes
	for _, s := range servers(r) {
		p := n.transport.peer(s.ID)
		if s.ID != n.raftID() && p.recent(n.patience()) && p.lastIndex < last {
			keep = max(keep, min(last-p.lastIndex, most))
		}
	}
	return keep
}

// mergeLoop lets the store tidy up after a flush, step by step. A step may write
// gigabytes; flushes go on meanwhile.
func (n *Node) mergeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.flushed:
		}
		did, err := true, error(nil)
		for did && err == nil {
			did, err = n.store.Merge(ctx)
		}
		if err != nil && ctx.Err() == nil {
			n.log.Warn("merging segments failed", "err", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
