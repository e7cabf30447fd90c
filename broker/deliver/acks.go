package deliver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

const (
	// mostAcked bounds one Ack command, in runs: each takes 20 bytes at most.
	mostAcked = raftfsm.ProposalBytes / 20
	// ackDelay is how long a delivery waits for others to share its Ack: each Ack costs
	// the disk a sync, and nobody waits for a single one.
	ackDelay = 10 * time.Millisecond
	// leastUnacked is how long deliveries may always go without their Ack before the
	// lanes wait for it. It is the lead of claims, which come through the same log: when
	// that is slower, what is due waits for a claim before it would wait for an Ack.
	leastUnacked = schedule.ClaimLead * time.Millisecond
	// finishPatience is how long the end of a term waits for its last Ack.
	finishPatience = 500 * time.Millisecond
)

// acks tells the log what Kafka has acknowledged. One Ack is in flight at a time;
// what is delivered meanwhile goes into the next, so the busier it is, the larger
// and fewer they get. Repeating one is harmless: the seqs are dead already.
//
// A crash repeats what is delivered and has no Ack in the log. A time bounds that, and not
// a number: no lane sends more while something has been delivered for leastUnacked, or for
// two commits as they were lately, without an Ack.
//
//	put -> gathered --ackDelay after the first--> proposed --commit--> in the log
//	          `---- at most one commit ----'      `- one commit -'
//
// So a delivery is in the log within two commits and ackDelay, and nobody waits as long
// as commits take what they took before. The number of deliveries does not matter, nor
// whose they are: a backlog goes out as fast as Kafka takes it, and no busy target keeps
// another from its turn.
type acks struct {
	commit commitFunc
	now    func() int64
	begun  time.Time
	ready  chan struct{}                 // holds a token when something is gathered, or lately was
	behind atomic.Int64                  // nanoseconds after begun from which on no lane may send; 0: never
	room   atomic.Pointer[chan struct{}] // closed and replaced when an Ack is in the log
	seqs   []uint64                      // taken out of gathered, not known to be in the log

	mu       sync.Mutex // guards all below
	gathered []uint64
	oldest   time.Time     // when the first of gathered came
	proposed time.Time     // the same of seqs, while they are not in the log; zero: nothing is on its way
	commits  time.Duration // what a commit takes, smoothed
}

// commitFunc puts a command into the log and waits until it is applied here.
type commitFunc func(context.Context, raftfsm.Command) (raftfsm.Result, error)

func newAcks(commit commitFunc, now func() int64) *acks {
	a := &acks{commit: commit, now: now, begun: time.Now(), ready: make(chan struct{}, 1)}
	room := make(chan struct{})
	a.room.Store(&room)
	return a
}

// put hands over what Kafka has acknowledged. It does not block; any lane may call it.
func (a *acks) put(seqs []uint64) {
	if len(seqs) == 0 {
		return
	}
	a.mu.Lock()
	if len(a.gathered) == 0 {
		a.oldest = time.Now()
		a.setLimit()
	}
	a.gathered = append(a.gathered, seqs...)
	a.mu.Unlock()
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// setLimit says from when on the lanes must wait for an Ack. The caller holds mu.
func (a *acks) setLimit() {
	first := a.proposed
	if first.IsZero() {
		first = a.oldest
	}
	if first.IsZero() {
		a.behind.Store(0)
		return
	}
	a.behind.Store(int64(first.Sub(a.begun) + max(leastUnacked, 2*a.commits+ackDelay)))
}

// isBehind reports whether something has been delivered for so long without its Ack
// that nothing more may be sent until that is in the log.
func (a *acks) isBehind() bool {
	behind := a.behind.Load()
	return behind > 0 && int64(time.Since(a.begun)) >= behind
}

// freed returns a channel that is closed when the next Ack is in the log.
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
		case <-a.ready:
		}
		a.mu.Lock()
		gather.Reset(time.Until(a.oldest.Add(ackDelay)))
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-gather.C:
		}
		if err := a.flush(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// finish acknowledges what is left when nothing more will be delivered. If it does
// not succeed, those messages are delivered twice, which "at least once" allows.
func (a *acks) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishPatience)
	defer cancel()
	_ = a.flush(ctx)
}

func (a *acks) flush(ctx context.Context) error {
	a.mu.Lock()
	a.seqs = append(a.seqs, a.gathered...)
	a.gathered = a.gathered[:0]
	a.proposed, a.oldest = a.oldest, time.Time{}
	a.mu.Unlock()
	slices.Sort(a.seqs)
	for runs := seqRuns(a.seqs); len(runs) > 0; {
		n := min(len(runs), mostAcked)
		begun := time.Now()
		if _, err := a.commit(ctx, raftfsm.Ack{Time: a.now(), Runs: runs[:n]}); err != nil {
			return fmt.Errorf("acknowledge %d deliveries: %w", len(a.seqs), err)
		}
		runs = runs[n:]
		a.committed(time.Since(begun), len(runs) == 0)
	}
	a.seqs = a.seqs[:0]
	return nil
}

// committed notes that an Ack is in the log, which took so long, and lets the lanes go on.
func (a *acks) committed(took time.Duration, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commits = (a.commits + took) / 2
	if all {
		a.proposed = time.Time{}
	}
	a.setLimit()
	room := make(chan struct{}) // after the limit: whoever has the new channel sees the new limit
	close(*a.room.Swap(&room))
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
