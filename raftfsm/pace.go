package raftfsm

import (
	"context"
	"time"
)

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
