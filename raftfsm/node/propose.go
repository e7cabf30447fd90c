package node

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// enqueueTimeout bounds how long Propose waits for Raft to take a command; it is
// then certain that it did not.
const enqueueTimeout = 5 * time.Second

// bytesInFlight bounds the commands that Raft holds but has not applied: its own
// limits count entries.
const bytesInFlight = 8 << 20

// Propose hands cmd to Raft. Commands of one goroutine keep their order. It
// blocks while 8 MiB of commands are in flight and until Raft takes the command,
// not until it is committed; ctx bounds the former. It keeps nothing of cmd.
func (n *Node) Propose(ctx context.Context, cmd raftfsm.Command) *raftfsm.Proposal {
	r := n.running()
	if r == nil {
		return raftfsm.Refused(fmt.Errorf("%w: not part of a group yet", raftfsm.ErrNotLeader))
	}
	if err := n.failureNow(); err != nil {
		return raftfsm.Refused(fmt.Errorf("%w: %w", raftfsm.ErrClosed, err))
	}
	size := cmd.Size()
	if size > raftfsm.MaxCommandBytes {
		return raftfsm.Refused(fmt.Errorf("%w: %d bytes, at most %d", raftfsm.ErrTooLarge, size, raftfsm.MaxCommandBytes))
	}
	weight := min(int64(size), bytesInFlight)
	if err := n.inFlight.Acquire(ctx, weight); err != nil {
		return raftfsm.Refused(fmt.Errorf("%w: %d MiB of commands in flight: %w", raftfsm.ErrBusy, bytesInFlight>>20, context.Cause(ctx)))
	}
	// The level in force here is never above what is committed.
	data, err := raftfsm.AppendCommand(make([]byte, 0, size), cmd, n.store.Level())
	if err == nil {
		// What a node cannot read it must not pass over: one such entry would stop all of them for good.
		err = raftfsm.CheckCommand(data)
	}
	if err != nil {
		n.inFlight.Release(weight)
		return raftfsm.Refused(err)
	}
	if !n.proposals.start() {
		n.inFlight.Release(weight)
		return raftfsm.Refused(raftfsm.ErrClosed)
	}
	future := answeredAtTheEnd(r.Apply(data, enqueueTimeout), n.closed)
	p, answer := raftfsm.NewProposal(n.closed)
	go func() {
		defer n.proposals.end()
		defer n.inFlight.Release(weight)
		answer(outcome(future))
	}()
	return p
}

func outcome(f raft.ApplyFuture) (raftfsm.Result, error) {
	if err := f.Error(); err != nil {
		return raftfsm.Result{}, proposalError(err)
	}
	switch v := f.Response().(type) {
	case raftfsm.Result:
		return v, nil
	case error:
		return raftfsm.Result{}, fmt.Errorf("%w: %w", raftfsm.ErrInDoubt, v)
	default:
		return raftfsm.Result{}, fmt.Errorf("%w: applying answered %T", raftfsm.ErrInDoubt, v)
	}
}

// proposalError sorts raft's errors by what they say about the entry.
func proposalError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", raftfsm.ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", raftfsm.ErrBusy, err)
	default:
		return fmt.Errorf("%w: %w", raftfsm.ErrInDoubt, err)
	}
}

// Barrier returns once an entry of this leader's own term is committed and
// everything before it is applied here: from then on the store is as new as any
// earlier leader left it. Errors are those of Proposal.Wait.
func (n *Node) Barrier(ctx context.Context) error {
	r := n.running()
	if r == nil {
		return fmt.Errorf("%w: not part of a group yet", raftfsm.ErrNotLeader)
	}
	if err := n.await(ctx, r.Barrier(enqueueTimeout)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// BarrierAt is Barrier with an entry that moves the schedule's time on to ms, epoch milliseconds: when it returns, that is no
// earlier, and never will be, on whichever node. Below storage.LevelThree, where nothing expires, it is Barrier alone. It
// waits for no room among the commands in flight: its entry takes a dozen bytes.
func (n *Node) BarrierAt(ctx context.Context, ms int64) error {
	r := n.running()
	level := n.store.Level()
	if r == nil || level < storage.LevelThree {
		return n.Barrier(ctx)
	}
	data, err := raftfsm.AppendCommand(nil, raftfsm.Operate{Time: ms}, level)
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	future := r.Apply(data, enqueueTimeout)
	if err = n.await(ctx, future); err == nil {
		_, err = outcome(future)
	}
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// await waits for a future of raft, which knows no context.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	if !n.proposals.start() {
		return raftfsm.ErrClosed
	}
	f = answeredAtTheEnd(f, n.closed)
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
		return fmt.Errorf("%w: %w", raftfsm.ErrInDoubt, context.Cause(ctx))
	case <-n.closed:
		return fmt.Errorf("%w: node closed", raftfsm.ErrInDoubt)
	}
}

// answeredAtTheEnd has a future of raft answer once the channel is closed, with raft.ErrRaftShutdown. Raft 1.7.3
// answers only some of its futures when it is shut down: those that it has handed to the FSM's goroutine, which
// ends without a look at them, nobody hears of again, and who waits for one waits for ever. Futures can answer by a
// channel, and those of Apply and Barrier are given none; nor is there another way to reach it. Call it before Error.
func answeredAtTheEnd[F raft.Future](f F, end chan struct{}) F {
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer {
		if channel := v.Elem().FieldByName("ShutdownCh"); channel.CanSet() && channel.Type() == reflect.TypeOf(end) && channel.IsNil() {
			channel.Set(reflect.ValueOf(end))
		}
	}
	return f
}

// A gate counts what is under way and lets nothing new begin once it is shut.
type gate struct {
	mu      sync.Mutex
	shut    bool
	running int
	idle    chan struct{} // closed when shut and nothing runs
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// start reports whether something may begin; if so, end must follow.
func (g *gate) start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.running++
	return true
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.shut && g.running == 0 {
		close(g.idle)
	}
}

// close lets nothing new begin and waits until nothing runs, but not longer than limit.
func (g *gate) close(limit time.Duration) {
	g.mu.Lock()
	g.shut = true
	if g.running == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.idle:
	case <-timer.C:
	}
}
