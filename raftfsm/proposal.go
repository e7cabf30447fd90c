package raftfsm

import (
	"context"
	"fmt"
)

// A Proposal is a command on its way through the log.
type Proposal struct {
	done   chan struct{}
	closed <-chan struct{} // of the node
	res    Result
	err    error
}

// NewProposal returns a proposal without an answer yet, and what gives it one, once.
// closed is closed when nobody will.
func NewProposal(closed <-chan struct{}) (p *Proposal, answer func(Result, error)) {
	p = &Proposal{done: make(chan struct{}), closed: closed}
	return p, func(res Result, err error) {
		p.res, p.err = res, err
		close(p.done)
	}
}

// Refused returns a proposal whose command was certainly not proposed, and why.
func Refused(err error) *Proposal {
	p, answer := NewProposal(nil)
	answer(Result{}, err)
	return p
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
