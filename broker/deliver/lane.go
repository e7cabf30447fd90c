package deliver

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/storage"
)

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
// failing for long parks the target (parked.go).
type lane struct {
	p        *Publisher
	target   string
	log      *slog.Logger
	orders   *mailbox.Mailbox[order]
	outcomes *mailbox.Mailbox[outcome]
	answers  *mailbox.Mailbox[PartitionCount]

	waiting []storage.Ref // handed over, payload not read yet
	ready   []*outgoing   // to be sent next
	flying  int           // sent, outcome not known
	flights []*outgoing   // in the order they were sent, answered ones in between
	failed  []*outgoing   // came back with an error and were not settled yet
	// unplaced name a partition that is not there, as far as we know.
	unplaced []*outgoing
	loaded   int // bytes of payload in ready, flying, failed and unplaced
	chunk    int // refs to read next time

	heard   PartitionCount // as Kafka last said; Count is 0 if that is not known, or something has failed since
	asking  bool           // the prober will answer
	askedAt time.Time      // when it was last asked
	askNext time.Time      // when it is asked next, without waiting for that

	count  int32 // partitions that flying records were placed by
	window int   // most records flying at a time; one: sent alone
	health health
	absent absence
	aside  aside
	warned time.Time // when the last refused dead letter was logged

	letters letters
	told    bool          // a probe order came, to a lane that was not parked
	parked  *parkedTarget // what is kept of the target; ends the lane

	admitted string // the delay topic for which the missing target counts, from now on

	takenOrders   []order   // reused
	takenOutcomes []outcome // reused
}

func newLane(p *Publisher, target string) *lane {
	return &lane{
		p:        p,
		target:   target,
		log:      p.log.With("target", target),
		orders:   mailbox.New[order](),
		outcomes: mailbox.New[outcome](),
		answers:  mailbox.New[PartitionCount](),
		window:   mostFlying,
		chunk:    leastChunk,
		letters:  p.lettersFor(target),
	}
}

// run delivers until ctx ends, there is nothing to do for a while, or something
// must end the term.
func (l *lane) run(ctx context.Context) error {
	timer := time.NewTimer(idleAfter)
	defer timer.Stop()
	for ctx.Err() == nil && l.parked == nil {
		l.tryAside()
		l.look()
		freed := l.p.acks.freed() // before it is looked whether it must be waited for
		if err := l.send(ctx); err != nil {
			return err
		}
		if l.parked != nil {
			break
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
				l.parkAsTold()
			}
		case <-l.answers.Ready():
			l.takeAnswers()
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
			if l.flying > 0 && time.Since(l.oldestFlight()) >= stallAfter {
				if err := l.giveUp(ctx); err != nil {
					return err
				}
			}
		}
	}
	if l.parked != nil {
		l.p.ended.Put(l)
		return nil
	}
	l.drain()
	return nil
}

// isIdle reports whether the lane has nothing to do and holds nothing. One that may
// not send, because Acks take long, is not idle.
func (l *lane) isIdle() bool {
	return l.flying == 0 && len(l.ready) == 0 && len(l.waiting) == 0 && len(l.unplaced) == 0 && l.aside.isEmpty()
}

// patience is how long the lane waits for something to happen. One whose target is
// absent has condemned all that there was.
func (l *lane) patience() time.Duration {
	wait := idleAfter
	switch {
	case l.flying > 0:
		wait = time.Until(l.oldestFlight().Add(stallAfter))
	case l.aside.mayTry():
		wait = time.Until(l.aside.again)
	case l.absent.condemning:
		wait = absentAgain
	}
	if len(l.unplaced) > 0 {
		wait = min(wait, max(time.Until(l.askedAt.Add(lookAgain)), time.Millisecond))
	}
	return wait
}

func (l *lane) takeOrders() {
	l.takenOrders = l.orders.Take(l.takenOrders)
	for _, o := range l.takenOrders {
		if o.probe {
			l.told = true
		} else {
			l.waiting = append(l.waiting, o.Ref)
		}
	}
	if cap(l.takenOrders) > mailbox.MostReused {
		l.takenOrders = nil
	}
}

// send reads and sends as much as window and budget allow, and hears Kafka's
// answers meanwhile, so that a long burst is acknowledged as it goes.
func (l *lane) send(ctx context.Context) error {
	for ctx.Err() == nil && l.parked == nil && l.mayLaunch() {
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
		count, err := l.partitions()
		if err == nil && count == 0 {
			return nil // the answer will wake us
		}
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

// launchReady sends what is ready. What has no place in the target is set aside, or
// condemned when that was so for long.
func (l *lane) launchReady(ctx context.Context) error {
	for l.mayLaunch() && len(l.ready) > 0 && ctx.Err() == nil {
		o := l.ready[0]
		partition, problem := choosePartition(&o.message, o.ref.Seq, l.count)
		if problem != nil && !o.nowhere {
			l.setUnplaced(o)
			l.look()
			continue
		}
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
