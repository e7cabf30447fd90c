package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// enqueueTimeout bounds how long Propose waits for Raft to take a command; it is
// then certain that it did not.
const enqueueTimeout = 5 * time.Second

// bytesInFlight bounds the commands that Raft holds but has not applied: its own
// limits count entries.
const bytesInFlight = 8 << 20

// A Proposal is a command on its way through the log.
type Proposal struct {
	done   chan struct{}
	closed <-chan struct{} // of the node
	res    Result
	err    error
}

// Wait blocks until the command is applied on this node, or failed, or ctx is
// done. Any number of goroutines may call it. Its error wraps ErrNotLeader,
// ErrBusy, ErrClosed or ErrTooLarge (certainly not proposed), or ErrInDoubt
// (unknown). ErrLevel (certainly not proposed) is a mistake of the caller.
func (p *Proposal) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		return p.res, p.err
	default:
	}
	select {
	case <-p.done:
		return p.res, p.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("%w: %w", ErrInDoubt, context.Cause(ctx))
	case <-p.closed:
		return Result{}, fmt.Errorf("%w: node closed", ErrInDoubt)
	}
}

// Done is closed when Wait has an answer.
func (p *Proposal) Done() <-chan struct{} { return p.done }

func refused(err error) *Proposal {
	p := &Proposal{done: make(chan struct{}), err: err}
	close(p.done)
	return p
}

// Propose hands cmd to Raft. Commands of one goroutine keep their order. It
// blocks while 8 MiB of commands are in flight and until Raft takes the command,
// not until it is committed; ctx bounds the former.
func (n *Node) Propose(ctx context.Context, cmd Command) *Proposal {
	r := n.running()
	if r == nil {
		return refused(fmt.Errorf("%w: not part of a group yet", ErrNotLeader))
	}
	if err := n.failureNow(); err != nil {
		return refused(fmt.Errorf("%w: %w", ErrClosed, err))
	}
	size := cmd.Size()
	if size > MaxCommandBytes {
		return refused(fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, MaxCommandBytes))
	}
	weight := min(int64(size), bytesInFlight)
	if err := n.inFlight.Acquire(ctx, weight); err != nil {
		return refused(fmt.Errorf("%w: %d MiB of commands in flight: %w", ErrBusy, bytesInFlight>>20, context.Cause(ctx)))
	}
	data := cmd.append(make([]byte, 0, size))
	if err := n.checkForm(data); err != nil {
		n.inFlight.Release(weight)
		return refused(err)
	}
	if !n.proposals.start() {
		n.inFlight.Release(weight)
		return refused(ErrClosed)
	}
	future := r.Apply(data, enqueueTimeout)
	p := &Proposal{done: make(chan struct{}), closed: n.closed}
	go func() {
		defer n.proposals.end()
		defer n.inFlight.Release(weight)
		defer close(p.done)
		p.res, p.err = outcome(future)
	}()
	return p
}

// checkForm keeps a form that not every member may understand out of the log: each
// that does not would stop. The level in force here is never above what is
// committed.
func (n *Node) checkForm(data []byte) error {
	version, kind := data[0], data[1]
	if need, now := levelOf(version, kind), n.store.Level(); need > now {
		return fmt.Errorf("%w: version %d of kind %d needs level %d, the cluster is at %d", ErrLevel, version, kind, need, now)
	}
	return nil
}

func outcome(f raft.ApplyFuture) (Result, error) {
	if err := f.Error(); err != nil {
		return Result{}, proposalError(err)
	}
	switch v := f.Response().(type) {
	case Result:
		return v, nil
	case error:
		return Result{}, fmt.Errorf("%w: %w", ErrInDoubt, v)
	default:
		return Result{}, fmt.Errorf("%w: applying answered %T", ErrInDoubt, v)
	}
}

// proposalError sorts raft's errors by what they say about the entry.
func proposalError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	default:
		return fmt.Errorf("%w: %w", ErrInDoubt, err)
	}
}

// Barrier returns once an entry of this leader's own term is committed and
// everything before it is applied here: from then on the store is as new as any
// earlier leader left it. Errors are those of Proposal.Wait.
func (n *Node) Barrier(ctx context.Context) error {
	r := n.running()
	if r == nil {
		return fmt.Errorf("%w: not part of a group yet", ErrNotLeader)
	}
	if err := n.await(ctx, r.Barrier(enqueueTimeout)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// await waits for a future of raft, which knows no context.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	if !n.proposals.start() {
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() {
		defer n.proposals.end()
		done <- f.Error()
	}()
	select {
	case err := <-done:
		if err != nil {
			return proposalError(err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrInDoubt, context.Cause(ctx))
	case <-n.closed:
		return fmt.Errorf("%w: node closed", ErrInDoubt)
	}
}
