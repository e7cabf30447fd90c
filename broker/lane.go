package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage"
)

const (
	// mostExposed bounds what a crash at this moment can repeat: the records of one
	// target that Kafka has not answered, and of all targets those whose Ack is not in
	// the log. On time they are few, and waiting for Acks would make messages late.
	mostExposed = 2048
	// mostExposedLate is the bound while what is to be sent is late by lateAfter or
	// more: a backlog goes out as fast as Kafka takes it, so nearly all of the bound
	// is used, and a few milliseconds matter no more.
	mostExposedLate = 256
	lateAfter       = time.Second
	// idleAfter ends the goroutine of a lane that has nothing to do.
	idleAfter = 30 * time.Second
	// slowAfter is how long a record may be without an answer before no other follows
	// it. A sink that gives a record up by itself, after twice this, fails what it
	// holds behind it as well; one sent at that very moment would overtake them.
	slowAfter = time.Second
	// stallAfter is how long a record may be without an answer before all that is on
	// its way is given up: longer than Kafka is slow, since that makes duplicates.
	stallAfter = 5 * time.Second
	// drainPatience is how long the end of a term waits for what is on its way.
	drainPatience = 500 * time.Millisecond
)

// A lane delivers the messages of one target topic, in the order it is handed them
// for each partition. One goroutine owns it, and exists only while there is work:
//
//	orders --> waiting --read--> ready --send--> flying --outcome--> acknowledged
//	                               ^                         |
//	                               `------ settle, sort <--- failed
//
// A failure stops the sending until nothing is flying any more (lane_retry.go);
// failing for long parks the target (lane_parked.go).
type lane struct {
	p        *publisher
	target   string
	log      *slog.Logger
	orders   *mailbox[order]
	outcomes *mailbox[outcome]

	waiting []storage.Ref // handed over, payload not read yet
	ready   []*outgoing   // to be sent next
	flying  int           // sent, outcome not known
	flights []*outgoing   // in the order they were sent, answered ones in between
	failed  []*outgoing   // came back with an error and were not settled yet
	loaded  int           // bytes of payload in ready, flying and failed
	chunk   int           // refs to read next time

	count  int32 // partitions that flying records were placed by
	window int   // most records flying at a time; one: sent alone
	health health
	absent absence
	aside  aside
	warned time.Time // when the last dead letter was logged

	takesDeadLetters bool
	alarmed          bool // the problem is in the report that they wait

	// unanswered counts the verdicts of being parked to which the scheduler has not
	// answered with a probe order; told is a probe order to a lane that was not.
	unanswered int
	told       bool

	takenOrders   []order   // reused
	takenOutcomes []outcome // reused
}

// An outcome is Kafka's answer for one record.
type outcome struct {
	o   *outgoing
	err error
}

func newLane(p *publisher, target string) *lane {
	return &lane{
		p:        p,
		target:   target,
		log:      p.log.With("target", target),
		orders:   newMailbox[order](),
		outcomes: newMailbox[outcome](),
		window:   mostExposed,
		chunk:    leastChunk,

		takesDeadLetters: slices.Contains(p.cfg.DeadLetterTopics, target),
	}
}

// run delivers until ctx ends, there is nothing to do for a while, or something
// must end the term.
func (l *lane) run(ctx context.Context) error {
	timer := time.NewTimer(idleAfter)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.tryAside()
		freed := l.p.acks.freed() // before it is looked whether there is room
		if err := l.send(ctx); err != nil {
			return err
		}
		if !l.isExposed() {
			freed = nil
		}
		timer.Reset(l.patience())
		select {
		case <-ctx.Done():
		case <-freed:
		case <-l.orders.Ready():
			l.takeOrders()
			if l.told {
				if err := l.parkAsTold(ctx); err != nil {
					return err
				}
			}
		case <-l.outcomes.Ready():
			l.takeOutcomes()
			if len(l.failed) > 0 {
				if err := l.regroup(ctx, nil); err != nil {
					return err
				}
			}
		case <-timer.C:
			if l.flying == 0 && !l.aside.isEmpty() {
				continue
			}
			if l.flying == 0 {
				l.relieve() // nothing waits any more
				l.p.ended.Put(l)
				return nil
			}
			l.log.Warn("target does not answer: giving up what is on its way, outcomes unknown", "records", l.flying, "waited", stallAfter)
			l.health.fail(l.oldestFlight())
			l.p.cfg.Sink.Isolate(l.target)
			if err := l.regroup(ctx, nil); err != nil {
				return err
			}
		}
	}
	l.drain()
	return nil
}

// patience is how long the lane waits for something to happen.
func (l *lane) patience() time.Duration {
	switch {
	case l.flying > 0:
		return time.Until(l.oldestFlight().Add(stallAfter))
	case !l.aside.isEmpty():
		return time.Until(l.aside.again)
	}
	return idleAfter
}

// mayLaunch reports whether another record may be sent now.
func (l *lane) mayLaunch() bool {
	if l.isExposed() {
		return false
	}
	return l.flying == 0 || l.flying < l.window && time.Since(l.oldestFlight()) < slowAfter
}

// isExposed reports whether a crash would repeat too much already.
func (l *lane) isExposed() bool {
	most := mostExposed
	if due, ok := l.nextDue(); ok && l.p.now()-due >= lateAfter.Milliseconds() {
		most = mostExposedLate
	}
	return l.flying+l.p.acks.unacked() >= most
}

// nextDue returns when the message was due that is to be sent next.
func (l *lane) nextDue() (due int64, ok bool) {
	switch {
	case len(l.ready) > 0:
		return l.ready[0].ref.Due, true
	case len(l.waiting) > 0:
		return l.waiting[0].Due, true
	}
	return 0, false
}

// oldestFlight returns when the record was sent that has waited longest for its
// answer. Something must be flying.
func (l *lane) oldestFlight() time.Time {
	for l.flights[0].answered {
		l.flights = l.flights[1:]
	}
	return l.flights[0].sent
}

func (l *lane) takeOrders() {
	l.takenOrders = l.orders.Take(l.takenOrders)
	for _, o := range l.takenOrders {
		switch {
		case !o.probe:
			l.waiting = append(l.waiting, o.Ref)
		case l.unanswered > 0:
			l.unanswered--
		default:
			l.told = true
		}
	}
}

// send reads and sends as much as window and budget allow, and hears Kafka's
// answers meanwhile, so that a long burst is acknowledged as it goes.
func (l *lane) send(ctx context.Context) error {
	for ctx.Err() == nil && l.mayLaunch() {
		l.takeOutcomes()
		if len(l.failed) > 0 {
			if err := l.regroup(ctx, nil); err != nil {
				return err
			}
			continue
		}
		if len(l.ready) == 0 {
			if !l.mayRead() {
				return nil
			}
			if err := l.read(); err != nil {
				return err
			}
			continue
		}
		count, err := l.partitions(ctx)
		if err != nil || count != l.count && l.flying > 0 {
			// With another count of partitions keys have other places. What is flying
			// comes first, so that the order of each key is kept.
			if err := l.regroup(ctx, err); err != nil {
				return err
			}
			continue
		}
		l.count = count
		if err := l.launchReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// launchReady sends what is ready; what has no place in the target is condemned.
func (l *lane) launchReady(ctx context.Context) error {
	for l.mayLaunch() && len(l.ready) > 0 && ctx.Err() == nil {
		o := l.ready[0]
		partition, problem := choosePartition(&o.message, o.ref.Seq, l.count)
		if problem != nil {
			if err := l.condemn(ctx, 1, *problem); err != nil {
				return err
			}
			continue
		}
		l.ready[0] = nil
		l.ready = l.ready[1:]
		l.launch(o, partition)
	}
	return nil
}

func (l *lane) launch(o *outgoing, partition int32) {
	if o.err != nil {
		l.p.cfg.Count.Retried(1)
	}
	o.sent, o.answered = time.Now(), false
	l.flights = append(l.flights, o)
	l.flying++
	outcomes := l.outcomes
	l.p.cfg.Sink.Send(l.p.delivery(o, l.target, partition), func(err error) {
		outcomes.Put(outcome{o, err})
	})
}

// takeOutcomes hears Kafka's answers: what is written is acknowledged, the rest
// has failed.
func (l *lane) takeOutcomes() {
	l.takenOutcomes = l.outcomes.Take(l.takenOutcomes)
	var written []uint64
	now := l.p.now()
	for _, answer := range l.takenOutcomes {
		o := answer.o
		o.err, o.answered = answer.err, true
		if o.err != nil {
			l.absent.hear(o.err)
			l.failed = append(l.failed, o)
			continue
		}
		written = append(written, o.ref.Seq)
		l.unload(o)
		switch {
		case !o.deadLetter:
			l.p.cfg.Count.Delivered(max(now-o.ref.Due-o.message.Overdue, 0)) // clocks of two leaders differ
		case o.lacksValue():
			l.p.cfg.Count.ValueDropped()
		}
		o.message = Message{} // flights may keep it for a while
		l.health.succeed(o.ref)
		l.aside.written(o.ref.Seq)
		l.relieve()
		l.absent = absence{}
		l.window = min(2*l.window, mostExposed)
	}
	l.flying -= len(l.takenOutcomes)
	if l.flying == 0 {
		clear(l.flights) // payloads
		l.flights = l.flights[:0]
	}
	clear(l.takenOutcomes) // payloads
	l.p.acks.put(written)
}

// drain waits for what is on its way when the term ends, so that it is not
// delivered twice, but not for long.
func (l *lane) drain() {
	if !l.await(nil, drainPatience) {
		l.p.cfg.Sink.Isolate(l.target)
	}
}

// await takes outcomes until nothing is flying, and reports whether it came to
// that before stop was closed or patience ended.
func (l *lane) await(stop <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for l.flying > 0 {
		select {
		case <-l.outcomes.Ready():
			l.takeOutcomes()
		case <-stop:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}

// partitions asks how many partitions the target has, or says again that it is
// absent if that was heard a moment ago.
func (l *lane) partitions(ctx context.Context) (int32, error) {
	if err := l.absent.recent(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	count, err := l.p.cfg.Sink.Partitions(ctx, l.target)
	if err == nil && count <= 0 {
		err = fmt.Errorf("topic %q has no partitions: %w", l.target, ErrTargetUnavailable)
	}
	l.absent.hear(err)
	return count, err
}
