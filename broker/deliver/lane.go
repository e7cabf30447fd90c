package deliver

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

// A lane delivers the messages of one target topic, in the order it is handed them for
// each partition. One goroutine owns it, and exists only while there is work. This is the
// way of a message (lane_messages.go):
//
//	orders --> waiting --read--> ready --send--> flying --outcome--> acknowledged
//	                               ^                         |
//	                               `--- sort <-- settling <--' failed
//
// What the lane does is its state (lane_states.go):
//
//	state        event                                              next
//	-----------  -------------------------------------------------  -----------------
//	sending      a record failed                                    settling
//	             Kafka says that the target is not there            settling
//	             it has another number of partitions than what      settling
//	             is flying was placed by
//	             no answer to any record for 5 s                    settling
//	             a partition has not been there for 3 s             condemning
//	             Confirm comes, and nothing is here                 ended, parked
//	             nothing to do for 30 s, or until an absent target
//	             is to be asked for again                           ended
//	settling     no answer to any record for 5 s: Isolate           settling
//	             nothing is flying any more, and health.judge says
//	               goOn                                             sending
//	               refuse, and it is a dead letter: set aside       sending
//	               refuse                                           condemning
//	               absentTooLong                                    condemning
//	               backOff                                          backing off
//	               giveUp, and one too many is missing              condemning
//	               giveUp                                           ended, parked
//	backing off  the time is over                                   sending
//	condemning   the log has a part of the command                  condemning
//	             the log has all of it                              sending
//	             the log refuses it, and the term ends              draining
//	draining     nothing is flying any more                         ended
//	             0.5 s have passed: Isolate                         ended
//	all others   the term ends                                      draining
//
// An error of storage or of the log ends the lane, and with it the term.
type lane struct {
	p      *Publisher
	target string
	log    *slog.Logger

	orders   *mailbox.Mailbox[order]     // from the dispatcher
	answers  *mailbox.Mailbox[countTold] // from the prober
	outcomes *mailbox.Mailbox[outcome]   // from the sink

	waiting  []storage.Ref // handed over, payload not read yet
	ready    []*outgoing   // to be sent next
	flights  flights       // sent, outcome not known
	series   *Series       // of all that is flying
	pace     pace          // of outcomes
	unplaced []*outgoing   // name a partition that is not there, as far as we know
	aside    aside         // dead letters that their topic refuses
	loaded   int           // bytes of payload in ready, flights, unplaced and what is settling

	health  health
	layout  layout
	letters letters
	begun   time.Time // when it began

	takenOrders   []order          // reused
	takenOutcomes []outcome        // reused
	headers       []message.Header // reused
}

func newLane(p *Publisher, target string) *lane {
	return &lane{
		p:        p,
		target:   target,
		log:      p.log.With("target", target),
		orders:   mailbox.New[order](),
		answers:  mailbox.New[countTold](),
		outcomes: mailbox.New[outcome](),
		series:   new(Series),
		health:   health{window: p.limits.Flying, widest: p.limits.Flying, afterTrial: p.limits.Flying},
		letters:  p.lettersFor(target),
	}
}

// An event is what a lane waits for. What comes with it is in a mailbox or in the state.
type event uint8

const (
	entered   event = iota // the state begins
	ordered                // the scheduler wants something
	answered               // Kafka has said how many partitions there are
	resolved               // Kafka has answered for records
	freed                  // an Ack is in the log
	committed              // the log has answered for the command of condemning
	timeUp                 // hearing.until has come
	termEnded
)

// hearing says for what a lane waits. A channel that is nil is not heard: what comes there stays
// until a state hears it.
type hearing struct {
	orders, answers, outcomes, freed, committed <-chan struct{}

	until       time.Time // zero: for ever
	outlastTerm bool      // the end of the term changes nothing
}

// run delivers until ctx ends, there is nothing to do for a while, the target is parked, or
// something must end the term.
func (l *lane) run(ctx context.Context) error {
	alarm := time.NewTimer(idleAfter)
	defer alarm.Stop()
	var s state = &sending{}
	for e := entered; ; {
		next, err := s.step(ctx, l, e)
		if err != nil || next == nil {
			return err // nothing of the lane may be touched any more: it may run again
		}
		if next != s {
			s, e = next, entered
			continue
		}
		if e = wait(ctx, s.hears(l), alarm); e == termEnded {
			s, e = &draining{}, entered
		}
	}
}

// wait returns the next event. It is the only place where a lane waits.
func wait(ctx context.Context, h hearing, alarm *time.Timer) event {
	end := ctx.Done()
	if h.outlastTerm {
		end = nil
	}
	if h.until.IsZero() {
		alarm.Stop()
	} else {
		alarm.Reset(time.Until(h.until))
	}
	select {
	case <-end:
		return termEnded
	case <-h.orders:
		return ordered
	case <-h.answers:
		return answered
	case <-h.outcomes:
		return resolved
	case <-h.freed:
		return freed
	case <-h.committed:
		return committed
	case <-alarm.C:
		return timeUp
	}
}

// isIdle reports whether the lane has nothing to do and holds nothing. One that may
// not send, because Acks take long, is not idle.
func (l *lane) isIdle() bool {
	return l.flights.flying == 0 && len(l.ready) == 0 && len(l.waiting) == 0 && len(l.unplaced) == 0 && l.aside.isEmpty()
}

// takeOrders takes in what the scheduler wants, and reports whether it has confirmed that the
// target is parked.
func (l *lane) takeOrders() (confirmed bool) {
	l.takenOrders = l.orders.Take(l.takenOrders)
	for _, o := range l.takenOrders {
		if o.confirm {
			confirmed = true
		} else {
			l.waiting = append(l.waiting, o.Ref)
		}
	}
	if cap(l.takenOrders) > mailbox.MostReused {
		l.takenOrders = nil
	}
	return confirmed
}

// giveBack empties the lane and returns all that it held and has not sent.
func (l *lane) giveBack() []storage.Ref {
	for seq := range l.aside.refused {
		l.p.cfg.Report.EndAside(seq)
	}
	refs := make([]storage.Ref, 0, len(l.ready)+len(l.unplaced)+len(l.waiting)+len(l.aside.letters))
	for _, o := range append(l.unplaced, l.ready...) {
		refs = append(refs, o.ref)
		l.unload(o)
	}
	refs = append(refs, l.waiting...)
	for _, letter := range l.aside.letters {
		refs = append(refs, letter.ref)
	}
	l.ready, l.unplaced, l.waiting, l.aside = nil, nil, nil, aside{}
	return refs
}
