package deliver

import (
	"cmp"
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
	// What one Ack command takes at most, in bytes, for each run and for each message with an id,
	// besides the name of its target.
	runBytes   = 20
	endedBytes = 64
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
	taken  ends                          // out of gathered, not known to be in the log

	mu       sync.Mutex // guards all below
	gathered ends
	oldest   time.Time     // when the first of gathered came
	proposed time.Time     // the same of taken, while they are not in the log; zero: nothing is on its way
	commits  time.Duration // what a commit takes: at once when it takes longer, and by and by when it takes less
}

// commitFunc puts a command into the log and waits until it is applied here.
type commitFunc func(context.Context, raftfsm.Command) (raftfsm.Result, error)

func newAcks(commit commitFunc, now func() int64) *acks {
	a := &acks{commit: commit, now: now, begun: time.Now(), ready: make(chan struct{}, 1)}
	room := make(chan struct{})
	a.room.Store(&room)
	return a
}

// ends are messages whose lives are over: delivered, or expired before they were.
type ends struct {
	seqs []uint64
	told []raftfsm.Ended // of those among them that have an id, what became of them
}

func (e *ends) add(seqs []uint64, told []raftfsm.Ended) {
	e.seqs = append(e.seqs, seqs...)
	e.told = append(e.told, told...)
}

func (e *ends) clear() {
	clear(e.told) // names of targets
	e.seqs, e.told = e.seqs[:0], e.told[:0]
}

// put hands over what Kafka has acknowledged or nobody may send any more, and for those of
// these that have an id what became of them. It does not block; any lane may call it.
func (a *acks) put(seqs []uint64, told ...raftfsm.Ended) {
	if len(seqs) == 0 {
		return
	}
	a.mu.Lock()
	if len(a.gathered.seqs) == 0 {
		a.oldest = time.Now()
		a.setLimit()
	}
	a.gathered.add(seqs, told)
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
func (a *acks) isBehind(now time.Time) bool {
	behind := a.behind.Load()
	return behind > 0 && int64(now.Sub(a.begun)) >= behind
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
	a.taken.add(a.gathered.seqs, a.gathered.told)
	a.gathered.clear()
	a.proposed, a.oldest = a.oldest, time.Time{}
	a.mu.Unlock()
	slices.Sort(a.taken.seqs)
	slices.SortFunc(a.taken.told, func(a, b raftfsm.Ended) int { return cmp.Compare(a.Seq, b.Seq) })
	for rest := a.taken; len(rest.seqs) > 0; {
		begun := time.Now()
		var ack raftfsm.Ack
		ack, rest = rest.next()
		ack.Time = a.now()
		if _, err := a.commit(ctx, ack); err != nil {
			return fmt.Errorf("acknowledge %d deliveries: %w", len(a.taken.seqs), err)
		}
		a.committed(time.Since(begun), len(rest.seqs) == 0)
	}
	a.taken.clear()
	return nil
}

// committed notes that an Ack is in the log, which took so long, and lets the lanes go on.
func (a *acks) committed(took time.Duration, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commits = max(took, (a.commits+took)/2)
	if all {
		a.proposed = time.Time{}
	}
	a.setLimit()
	room := make(chan struct{}) // after the limit: whoever has the new channel sees the new limit
	close(*a.room.Swap(&room))
}

// next returns an Ack for the first of the ends, which are sorted by seq, and the rest. It has about
// raftfsm.ProposalBytes at most. What is told of a message goes with the Ack that ends its life:
// Apply believes nobody who comes later.
func (e ends) next() (ack raftfsm.Ack, rest ends) {
	n, told, bytes := 0, 0, 0
	for n < len(e.seqs) && bytes < raftfsm.ProposalBytes {
		seq := e.seqs[n]
		n++
		if last := len(ack.Runs) - 1; last >= 0 && seq <= ack.Runs[last].Last+1 {
			ack.Runs[last].Last = seq
		} else {
			ack.Runs = append(ack.Runs, storage.SeqRun{First: seq, Last: seq})
			bytes += runBytes
		}
		for told < len(e.told) && e.told[told].Seq == seq {
			bytes += endedBytes + len(e.told[told].Target)
			told++
		}
	}
	ack.Ended = e.told[:told:told]
	return ack, ends{e.seqs[n:], e.told[told:]}
}
