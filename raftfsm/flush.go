package raftfsm

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"
)

const flushRetry = time.Second

// shortEvery is how often a node flushes that is down to its reserve of disk and
// accepts nothing: only a flush cuts the log, and lets a merge drop the files of
// what was delivered.
const shortEvery = 5 * time.Second

// flushLoop is the only caller of raft.Snapshot: when enough log has gathered,
// when something was applied and enough time has passed, or less when the disk is
// short. One that raft puts off, because a change of members is not committed
// yet, or that fails is tried again until it succeeds; Room tells of the latter.
func (n *Node) flushLoop(ctx context.Context, r *raft.Raft) {
	ticker := time.NewTicker(n.cfg.FlushInterval)
	defer ticker.Stop()
	short := time.NewTicker(shortEvery)
	defer short.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.fsm.backlog.due:
		case <-ticker.C:
			if n.fsm.backlog.unsaved() == 0 {
				continue
			}
		case <-short.C:
			if n.fsm.backlog.unsaved() == 0 || !n.isShort() {
				continue
			}
		}
		for err := n.flush(r); err != nil && ctx.Err() == nil && n.failureNow() == nil; err = n.flush(r) {
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
	err := r.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err == nil {
		n.noteReceived(nil) // something was applied: the log reaches this node again
		// The memtable is garbage now, the larger part of the heap: it would stay
		// with the process until the next one needs it.
		debug.FreeOSMemory()
	}
	return err
}

// mergeLoop lets the store tidy up after a flush, step by step. A step may write
// gigabytes, at mergeRate; flushes go on meanwhile, and drop what is fully dead.
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
