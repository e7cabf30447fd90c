package broker

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

const (
	// mostAcked bounds one Ack command: a run takes 20 bytes at most.
	mostAcked = raftfsm.ProposalBytes / 20
	// An Ack waits until so many deliveries have gathered, or for ackDelay: each costs
	// the disk a sync, and nobody waits for it. What has gathered is delivered again
	// after a crash, and a lane that is late may have no more than mostExposedLate.
	fullAck  = mostExposedLate / 2
	ackDelay = 10 * time.Millisecond
	// finishPatience is how long the end of a term waits for its last Ack.
	finishPatience = 500 * time.Millisecond
)

// acks tells the log what Kafka has acknowledged. One Ack is in flight at a time;
// what is delivered meanwhile goes into the next, so the busier it is, the larger
// and fewer they get. Repeating one is harmless: the seqs are dead already.
type acks struct {
	delivered *mailbox[uint64]
	waiting   atomic.Int64                  // delivered, Ack not in the log
	room      atomic.Pointer[chan struct{}] // closed and replaced when waiting gets less
	commit    commitFunc
	now       func() int64
	full      chan struct{} // holds a token when fullAck deliveries wait, or lately did
	seqs      []uint64      // taken from the mailbox, not known to be committed
}

// commitFunc puts a command into the log and waits until it is applied here.
type commitFunc func(context.Context, raftfsm.Command) (raftfsm.Result, error)

func newAcks(commit commitFunc, now func() int64) *acks {
	a := &acks{delivered: newMailbox[uint64](), commit: commit, now: now, full: make(chan struct{}, 1)}
	room := make(chan struct{})
	a.room.Store(&room)
	return a
}

// put hands over what Kafka has acknowledged. It does not block; any lane may call it.
func (a *acks) put(seqs []uint64) {
	if len(seqs) == 0 {
		return
	}
	waiting := a.waiting.Add(int64(len(seqs)))
	a.delivered.Put(seqs...)
	if waiting >= fullAck {
		select {
		case a.full <- struct{}{}:
		default:
		}
	}
}

// unacked returns how many deliveries the log does not know of yet.
func (a *acks) unacked() int { return int(a.waiting.Load()) }

// freed returns a channel that is closed when unacked gets less than it is now.
func (a *acks) freed() <-chan struct{} { return *a.room.Load() }

// run acknowledges until ctx ends or the log does not take it: then the term must
// end, since nobody knows what the next one will deliver again.
func (a *acks) run(ctx context.Context) error {
	gather := time.NewTimer(ackDelay)
	defer gather.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.delivered.Ready():
		}
		gather.Reset(ackDelay)
		// Nothing is in flight here, so what is not acknowledged is what has gathered.
		for late := false; !late && a.unacked() < fullAck; {
			select {
			case <-ctx.Done():
				return nil
			case <-a.full:
			case <-gather.C:
				late = true
			}
		}
		if err := a.flush(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// finish acknowledges what is left when nothing more will be delivered. If it does
// not succeed, those messages are delivered twice, which at least once allows.
func (a *acks) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishPatience)
	defer cancel()
	_ = a.flush(ctx)
}

func (a *acks) flush(ctx context.Context) error {
	a.seqs = append(a.seqs, a.delivered.Take(nil)...)
	slices.Sort(a.seqs)
	for len(a.seqs) > 0 {
		n := min(len(a.seqs), mostAcked)
		ack := raftfsm.Ack{Time: a.now(), Runs: seqRuns(a.seqs[:n])}
		if _, err := a.commit(ctx, ack); err != nil {
			return fmt.Errorf("acknowledge %d deliveries: %w", n, err)
		}
		a.seqs = a.seqs[n:]
		a.waiting.Add(-int64(n))
		room := make(chan struct{})
		close(*a.room.Swap(&room))
	}
	a.seqs = nil
	return nil
}

// seqRuns returns the sorted seqs as runs without gaps.
func seqRuns(seqs []uint64) []storage.SeqRun {
	var runs []storage.SeqRun
	for _, seq := range seqs {
		if last := len(runs) - 1; last >= 0 && seq <= runs[last].Last+1 {
			runs[last].Last = seq
		} else {
			runs = append(runs, storage.SeqRun{First: seq, Last: seq})
		}
	}
	return runs
}
