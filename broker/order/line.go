package order

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

const (
	// inFlight is how many commands are on their way at a time: while one is written to the disks, the
	// next one gathers.
	inFlight = 2
	// mostTogether bounds the operations of a command, mostWaiting the bytes of all that wait for one.
	mostTogether = 4096
	mostWaiting  = 32 << 20
	// commitTimeout bounds how long a command is waited for: a leader that is cut off hears only after
	// a while that it is none.
	commitTimeout = 10 * time.Second
)

// A line takes what callers ask into the log, many together in one command: each costs the disks a sync.
// Nobody waits for others to come. Who comes while commands are on their way goes with the next one.
//
//	callers    a | b c d | e f
//	commands     |--a-->|
//	               |--b c d--->|
//	                     |--e f--->|
type line struct {
	commit func(ctx context.Context, operations []raftfsm.Operation) (raftfsm.Result, error)

	mu      sync.Mutex
	waiting []*ticket
	bytes   int // of those
	runs    int // goroutines that take from it
}

// A ticket is what one caller asks for at once.
type ticket struct {
	operations []raftfsm.Operation
	size       int // bytes

	done    chan struct{} // closed when the rest is there
	answers []raftfsm.Answer
	err     error
}

// do returns the answers to the operations, in their order, which all are in the log then. It fails as a
// whole: with ErrBusy nothing was proposed, and so as Proposal.Wait says; with ErrInDoubt if ctx ends first.
// Operations of more than raftfsm.ProposalBytes belong into several calls.
func (l *line) do(ctx context.Context, operations []raftfsm.Operation) ([]raftfsm.Answer, error) {
	t := &ticket{operations: operations, done: make(chan struct{})}
	for i := range operations {
		t.size += raftfsm.OperationSize(&operations[i], "")
	}
	if err := l.join(t); err != nil {
		return nil, err
	}
	select {
	case <-t.done:
		return t.answers, t.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", raftfsm.ErrInDoubt, context.Cause(ctx))
	}
}

func (l *line) join(t *ticket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes > 0 && l.bytes+t.size > mostWaiting {
		return fmt.Errorf("%w: %d MiB wait for the log", raftfsm.ErrBusy, mostWaiting>>20)
	}
	l.waiting, l.bytes = append(l.waiting, t), l.bytes+t.size
	if l.runs < inFlight {
		l.runs++
		go l.run()
	}
	return nil
}

// run commits one command after the other until nobody waits.
func (l *line) run() {
	for {
		tickets := l.take()
		if len(tickets) == 0 {
			return
		}
		var all []raftfsm.Operation
		for _, t := range tickets {
			all = append(all, t.operations...)
		}
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		result, err := l.commit(ctx, all)
		cancel()
		answers := answersOf(result, len(all))
		for _, t := range tickets {
			if t.err = err; err == nil {
				t.answers, answers = answers[:len(t.operations)], answers[len(t.operations):]
			}
			close(t.done)
		}
	}
}

// take returns who goes next: as many as fit into a command, one at least.
func (l *line) take() []*ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, count, bytes := 0, 0, 0
	for _, t := range l.waiting {
		if n > 0 && (bytes+t.size > raftfsm.ProposalBytes || count+len(t.operations) > mostTogether) {
			break
		}
		n, count, bytes = n+1, count+len(t.operations), bytes+t.size
	}
	tickets := l.waiting[:n:n]
	l.waiting, l.bytes = l.waiting[n:], l.bytes-bytes
	if n == 0 {
		l.waiting = nil
		l.runs--
	}
	return tickets
}

// answersOf returns the answer to each operation of a command: the log gives none where all of them just
// accept their messages.
func answersOf(result raftfsm.Result, operations int) []raftfsm.Answer {
	if len(result.Answers) > 0 && result.Answers[0] != nil {
		return result.Answers[0]
	}
	answers := make([]raftfsm.Answer, operations)
	for i := range answers {
		answers[i] = raftfsm.Answer{Code: raftfsm.Scheduled, Seq: result.FirstSeq + uint64(i)}
	}
	return answers
}
