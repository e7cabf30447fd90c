package bulk

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
)

const (
	// mostStep is how many messages a step is for: Apply waits a few milliseconds for it, while what it looks up is
	// in memory, or in the page cache. Of a cold disk it waits for some pages for each.
	mostStep = 256
	// stepsPerSecond is how many steps a rate is divided into, if it allows one message for each.
	stepsPerSecond = 10
	// mostLooked bounds the messages of a stretch, mostStretches those that are read for one step.
	mostLooked    = 256
	mostStretches = 16
	// retry is after how long a step is tried again that the log did not take.
	retry = time.Second
	// maxSeq is above all seqs.
	maxSeq = math.MaxUint64
)

// Run carries out the operations that run, until ctx ends: a part of a term, behind its barrier. Two never
// run at a time on one node. What cannot be done now is tried again, so there is no error but ctx's.
//
// Each operation has a goroutine, and they take turns, so that together they take no more of the node than
// one does. An operation without a rate pauses after each step for as long as the step took.
func (d *Desk) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	turn := make(chan struct{}, 1)
	begun := uint64(0) // operations up to it have their goroutine
	for {
		running := d.Store.Bulks()
		for i := len(running) - 1; i >= 0; i-- {
			o := running[i]
			if o.State != bulk.Running || o.ID <= begun {
				continue
			}
			begun = o.ID
			all.Go(func() { d.carryOut(ctx, o.ID, turn) })
		}
		select {
		case <-d.called:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// carryOut takes one step after the other until the operation has ended, or ctx.
func (d *Desk) carryOut(ctx context.Context, id uint64, turn chan struct{}) {
	log := d.log.With("operation", id)
	defer d.waits.set(id, "")
	var read ahead
	next := time.Now() // paced by the monotonic clock, whatever the wall does
	for {
		if !sleep(ctx, time.Until(next)) {
			return
		}
		o, runs := d.Store.RunningBulk(id)
		if !runs {
			log.Info("operation ended")
			return
		}
		again, err := d.step(ctx, o, &read, turn)
		next = again
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if d.waits.of(id) == "" {
				log.Warn("operation waits: a step failed and is tried again", "error", err)
			}
			d.waits.set(id, err.Error())
			next = time.Now().Add(retry)
		default:
			d.waits.set(id, "")
		}
	}
}

// waits are the operations that cannot go on, and why.
type waits struct {
	mu  sync.Mutex
	why map[uint64]string
}

// set says why the operation waits; "": it does not.
func (w *waits) set(id uint64, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == "" {
		delete(w.why, id)
		return
	}
	if w.why == nil {
		w.why = map[uint64]string{}
	}
	w.why[id] = why
}

func (w *waits) of(id uint64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why[id]
}

// sleep returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// step does what is next of the operation when it is its turn, and returns when to go on: after as long again,
// or as its rate has it.
func (d *Desk) step(ctx context.Context, o bulk.Operation, read *ahead, turn chan struct{}) (next time.Time, err error) {
	t, err := readTask(o.What)
	if err != nil {
		return next, err
	}
	if t.Verb == client.OperationReplay { // before its turn: Kafka takes what time it likes
		if err := d.readAhead(ctx, &o, &t, read); err != nil {
			return next, err
		}
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return next, ctx.Err()
	}
	defer func() { <-turn }()
	begin := time.Now()
	rest, err := d.take(ctx, o, &t, read)
	return begin.Add(max(rest, 2*time.Since(begin))), err
}

// take takes a step, and returns how long that is to take by the operation's rate; 0: it has none.
func (d *Desk) take(ctx context.Context, o bulk.Operation, t *task, read *ahead) (rest time.Duration, err error) {
	if t.Verb != client.OperationCancel { // what is cancelled makes room
		if err := d.Log.Room(); err != nil {
			return 0, err
		}
	}
	most := mostStep
	if t.Rate > 0 {
		most = min(most, max(1, t.Rate/stepsPerSecond))
	}
	var c raftfsm.StepBulk
	if t.Verb == client.OperationReplay {
		c, err = d.gatherLetters(&o, t, read, most)
	} else {
		c, err = d.gather(ctx, o, t, most)
	}
	if err != nil {
		return 0, err
	}
	result, err := d.Log.Propose(ctx, c).Wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("commit a step: %w", err)
	}
	d.count(c, result)
	if t.Rate == 0 {
		return 0, nil
	}
	dealtWith := time.Duration(dealtWith(&c))
	return dealtWith * time.Second / time.Duration(t.Rate), nil
}

// dealtWith returns how many messages the step is for, those left out that were over before.
func dealtWith(c *raftfsm.StepBulk) int { return len(c.Operations) + int(c.Passed.Failed) }

// gather reads what comes next and returns the step that it makes, of so many messages at most.
func (d *Desk) gather(ctx context.Context, o bulk.Operation, t *task, most int) (raftfsm.StepBulk, error) {
	now := d.Now().UnixMilli()
	c := raftfsm.StepBulk{Time: now, ID: o.ID, From: o.Cursor}
	w, err := query.NewWalk(d.Store, t.Filter, o.UpperSeq)
	if err != nil {
		return c, err
	}
	at, err := placeOf(o.Cursor, w.First())
	if err != nil {
		return c, err
	}
	size := 0
	for range mostStretches {
		s, err := w.Stretch(ctx, at, mostLooked)
		if err != nil {
			return c, err
		}
		for i := range s.Met {
			met := &s.Met[i]
			if met.Message.DeadLetter { // what waited has ended as such, and dead letters are never dropped
				c.Passed.TooLate++
				continue
			}
			op, problem := d.operation(t, met, o.Started, now)
			bytes := raftfsm.OperationSize(&op, "")
			taken := dealtWith(&c)
			if taken == most || taken > 0 && size+bytes > raftfsm.ProposalBytes {
				c.Next = cursorOf(met.Ref)
				return c, nil
			}
			if problem != nil {
				c.Passed.Failed, c.Problem = c.Passed.Failed+1, problemText(met, problem)
				continue
			}
			c.Operations, size = append(c.Operations, op), size+bytes
		}
		at = s.Next
		c.Next, c.Finished = cursorOf(at), s.Done
		if s.Done || dealtWith(&c) == most {
			break
		}
	}
	if c.Finished {
		c.Passed.TooLate += missed(&o, t, &c)
	}
	return c, nil
}

// missed returns how many messages that were meant at the start the operation has never come to by its last
// step: they have ended before, such as those that were delivered while it could not go on. It is known only if
// it is known how many were meant.
func missed(o *bulk.Operation, t *task, last *raftfsm.StepBulk) uint64 {
	all := o.Plus(last.Passed)
	met := all.Done + all.TooLate + all.NotFound + all.Failed + uint64(len(last.Operations))
	if t.Within > 0 || met > t.Matched {
		return 0
	}
	return t.Matched - met
}

// operation returns what is to be done to a message: on the condition that it waits still, and is the very
// one that was read.
func (d *Desk) operation(t *task, met *query.Met, started, now int64) (raftfsm.Operation, *client.Problem) {
	op := raftfsm.Operation{Verb: raftfsm.Cancel, If: raftfsm.Exactly, Seq: met.Seq, Entry: storage.Entry{Topic: met.Message.Origin.Topic, ID: met.Message.ID}}
	if op.Entry.ID == "" || t.Verb == client.OperationCancel { // also if it has lost the id to another
		op.Of = &storage.Found{Ref: met.Ref, Target: met.Target, Topic: met.Topic, Expires: met.Expires}
	}
	if t.Verb != client.OperationCancel {
		op.Verb = raftfsm.Change
	}
	if met.Standing == storage.Claimed || met.Standing == storage.Expired {
		return op, nil // that lasts, so the entry is never looked at: the log says that it is too late
	}
	if met.Err != nil && (op.Verb == raftfsm.Change || met.ID == "") { // without an id it may be a dead letter
		return op, &client.Problem{Detail: "it is stored, and cannot be read: " + met.Err.Error()}
	}
	if op.Verb == raftfsm.Cancel {
		return op, nil
	}
	entry, problem := d.Orders.Changed(&met.Listed, t.changed(met.Due, min(started, d.Due().UnixMilli())), now)
	if problem != nil {
		return op, problem
	}
	op.Entry = entry
	return op, nil
}

// problemText tells which message cannot be changed and why.
func problemText(met *query.Met, problem *client.Problem) string {
	text := fmt.Sprintf("message %d: %s", met.Seq, problem.Detail)
	if len(text) > bulk.MostProblem {
		text = text[:bulk.MostProblem]
	}
	return text
}

func (d *Desk) count(c raftfsm.StepBulk, result raftfsm.Result) {
	d.Count.Accepted(result.Accepted)
	if len(result.Answers) == 0 {
		return // another leader's step came first
	}
	for i, a := range result.Answers[0] {
		if c.Operations[i].Entry.ID != "" {
			d.Count.Answered(a.Code.String(), 1)
		}
	}
}
