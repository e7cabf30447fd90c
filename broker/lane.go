package broker

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// countMaxAge bounds how long partitions that are added to a target go unused.
const countMaxAge = 5 * time.Second

// idleAfter ends the goroutine of a lane that has nothing to do.
const idleAfter = 30 * time.Second

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

	heard   int32     // partitions of the target, as Kafka last said; 0: not known, or something failed since
	heardAt time.Time // when it did

	count  int32 // partitions that flying records were placed by
	window int   // most records flying at a time; one: sent alone
	health health
	absent absence
	aside  aside
	warned time.Time // when the last dead letter was logged

	takesDeadLetters bool // by the configuration, or some were handed over
	reported         bool // the problem is in the report that they wait

	// unanswered counts the verdicts of being parked to which the scheduler has not
	// answered with a probe order; told is a probe order to a lane that was not.
	unanswered int
	told       bool

	takenOrders   []order   // reused
	takenOutcomes []outcome // reused
}

func newLane(p *publisher, target string) *lane {
	return &lane{
		p:        p,
		target:   target,
		log:      p.log.With("target", target),
		orders:   newMailbox[order](),
		outcomes: newMailbox[outcome](),
		window:   mostFlying,
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
		freed := l.p.acks.freed() // before it is looked whether it must be waited for
		if err := l.send(ctx); err != nil {
			return err
		}
		if len(l.ready) == 0 && len(l.waiting) == 0 {
			freed = nil // there is nothing that it could let go out
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
			if l.isIdle() {
				l.relieve() // nothing waits any more
				l.p.ended.Put(l)
				return nil
			}
			if l.flying > 0 {
				if err := l.giveUp(ctx); err != nil {
					return err
				}
			}
		}
	}
	l.drain()
	return nil
}

// isIdle reports whether the lane has nothing to do and holds nothing. One that may
// not send, because Acks take long, is not idle.
func (l *lane) isIdle() bool {
	return l.flying == 0 && len(l.ready) == 0 && len(l.waiting) == 0 && l.aside.isEmpty()
}

// patience is how long the lane waits for something to happen.
func (l *lane) patience() time.Duration {
	switch {
	case l.flying > 0:
		return time.Until(l.oldestFlight().Add(stallAfter))
	case l.aside.mayTry():
		return time.Until(l.aside.again)
	}
	return idleAfter
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

// partitions asks how many partitions the target has, unless that was heard a moment
// ago and nothing of it has failed since; or it says again that the target is absent.
func (l *lane) partitions(ctx context.Context) (int32, error) {
	if err := l.absent.recent(); err != nil {
		return 0, err
	}
	if l.heard > 0 && time.Since(l.heardAt) < countMaxAge {
		return l.heard, nil
	}
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	answer := l.p.cfg.Sink.Partitions(ctx, []string{l.target})[0]
	l.heard, l.heardAt = answer.Count, time.Now()
	l.absent.hear(answer.Err)
	return answer.Count, answer.Err
}
