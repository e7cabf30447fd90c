package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/repeats"
)

const flushRetry = time.Second

// lookEvery is how often a node looks at its disk, or each heartbeat if that is longer. One that is
// down to its reserve, and accepts nothing, flushes then, and so does one on whose disk much is dead: only
// a flush cuts the log, and lets a merge drop the files of what was delivered. One whose data directory is gone stops.
const lookEvery = 5 * time.Second

// muchDead is how many bytes of messages may have died since the last flush. What delivers a burst is a small part of it
// in the log, and would not have it flushed for minutes. It is half of what the disk may hold of the dead beside twice what is
// alive; the other half are those that merges leave (storage/merge).
const muchDead = 64 << 20

// releaseAfter is how long after a flush memory is returned to the system. The memtable is garbage then, the
// larger part of the heap, and would stay with the process until the next one needs it. Where flushes follow one
// another the next one does, and pages that were returned would have to be got anew.
const releaseAfter = 5 * time.Second

// flushLoop is the only caller of raft.Snapshot: when enough log has gathered,
// when something was applied and enough time has passed, or less when the disk is
// short or has much that is dead. One that raft puts off, because a change of members is not committed
// yet, or that fails is tried again until it succeeds; Room tells of the latter.
func (n *Node) flushLoop(ctx context.Context, r *raft.Raft) {
	ticker := time.NewTicker(n.cfg.FlushInterval)
	defer ticker.Stop()
	look := time.NewTicker(max(lookEvery, n.cfg.Heartbeat))
	defer look.Stop()
	release := time.NewTimer(releaseAfter)
	release.Stop() // until something was flushed
	defer release.Stop()
	said := repeats.New()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.fsm.Backlog().Due():
		case <-ticker.C:
			if unsaved, _ := n.fsm.Backlog().Unsaved(); unsaved == 0 {
				continue
			}
		case <-look.C:
			n.confirmDirectory()
			if unsaved, _ := n.fsm.Backlog().Unsaved(); unsaved == 0 || !n.isShort() && n.store.DeadSinceFlush() < muchDead {
				continue
			}
		case <-release.C:
			n.cfg.FreeMemory()
			continue
		}
		for err := n.flush(r); err != nil && ctx.Err() == nil && n.failureNow() == nil; err = n.flush(r) {
			level := slog.LevelWarn
			if said.Again("not flushed") {
				level = slog.LevelDebug
			}
			n.log.Log(ctx, level, "not flushed, trying again", "error", err, "retry_in", flushRetry)
			n.confirmDirectory()
			pause(ctx, flushRetry)
		}
		select {
		case n.flushed <- struct{}{}:
		default:
		}
		release.Reset(releaseAfter)
	}
}

// confirmDirectory stops the node when its data directory is gone. It would lead on, or vote for who
// leads, with a log that the next start does not find.
func (n *Node) confirmDirectory() {
	if err := n.identityNow().Confirm(n.self); errors.Is(err, raftfsm.ErrDamaged) {
		n.failWith(err)
	}
}

func (n *Node) flush(r *raft.Raft) error {
	err := r.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err == nil {
		n.noteReceived(nil) // something was applied: the log reaches this node again
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
			n.log.Warn("merging segments failed", "error", err)
		}
	}
}

// mergeRate is how many bytes a second merges write: a third of what an ordinary
// disk takes, so that the log's syncs do not wait behind them. It is above what
// merging costs a node that takes in 10,000 messages of 1 KB a second.
const mergeRate = 32 << 20

// A pacer spreads bytes over time. It belongs to one goroutine.
type pacer struct {
	rate int       // bytes a second
	next time.Time // when what was let through so far is paid for
}

// wait returns when n bytes more may be written, or ctx's error. An idle time
// earns nothing.
func (p *pacer) wait(ctx context.Context, n int) error {
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	pause(ctx, p.next.Sub(now))
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	return ctx.Err()
}

// paceMerge is the store's Config.Pace. A disk that is down to the reserve gets
// back what is dead as fast as it can.
func (n *Node) paceMerge(ctx context.Context, bytes int) error {
	if n.isShort() {
		return ctx.Err()
	}
	return n.merges.wait(ctx, bytes)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
