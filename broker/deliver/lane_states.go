package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/outcomes"
)

const (
	// idleAfter ends the goroutine of a lane that has nothing to do.
	idleAfter = 30 * time.Second
	// stallAfter is how long Kafka may answer nothing of what is on its way before all of that
	// is given up: longer than Kafka is slow, since that makes duplicates.
	stallAfter = 5 * time.Second
	// drainPatience is how long the end of a term waits for what is on its way.
	drainPatience = 500 * time.Millisecond
)

// A state is what a lane does until something else is to be done; lane.go has the table. Its
// value holds what is known in this state only, and is dropped with it.
type state interface {
	// step takes an event in and does what can be done without waiting. It returns the state
	// in which the lane waits for the next event, or another one, which is entered at once;
	// nil ends the lane, whose end the dispatcher then knows.
	step(ctx context.Context, l *lane, e event) (state, error)
	// hears says what the lane waits for in this state.
	hears(l *lane) hearing
}

// sending is the state in which messages are read and sent.
type sending struct {
	freed <-chan struct{} // is closed when the next Ack is in the log
}

func (s *sending) step(ctx context.Context, l *lane, e event) (state, error) {
	switch e {
	case entered:
		l.takeAnswers() // they came while nobody heard them
	case ordered:
		if confirmed := l.takeOrders(); confirmed {
			if l.isIdle() {
				return l.end(newParked(l, parked{had: &hadLane{timeout: l.p.cfg.LeastMissingTimeout}}))
			}
			// A target with messages to send is not parked, and the scheduler must hear that.
			l.p.cfg.Verdicts.Put(schedule.Verdict{Target: l.target})
		}
	case answered:
		l.takeAnswers()
	case resolved, timeUp: // when both have come either is told, and what was answered is not given up
		if failed := l.takeOutcomes(); len(failed) > 0 {
			return newSettling(failed, nil), nil
		}
		switch {
		case e == resolved:
		case l.isIdle():
			l.relieve() // nothing waits any more
			return l.end(nil)
		case l.flights.isSilent():
			l.health.fail(l.flights.unansweredSince())
			return newSettling(nil, nil), nil
		}
	}
	l.tryAside()
	l.look()
	s.freed = l.p.acks.freed() // before send sees whether an Ack must be waited for
	return s.send(ctx, l)
}

func (s *sending) hears(l *lane) hearing {
	h := hearing{
		orders:   l.orders.Ready(),
		answers:  l.answers.Ready(),
		outcomes: l.outcomes.Ready(),
		until:    time.Now().Add(s.patience(l)),
	}
	if len(l.ready) > 0 || len(l.waiting) > 0 { // or there is nothing that an Ack could let go out
		h.freed = s.freed
	}
	return h
}

// patience is how long the lane waits for something to happen. One whose target is
// absent has condemned all that there was.
func (s *sending) patience(l *lane) time.Duration {
	wait := idleAfter
	switch {
	case l.flights.flying > 0:
		wait = time.Until(l.flights.unansweredSince().Add(stallAfter))
	case l.aside.mayTry():
		wait = time.Until(l.aside.again)
	case l.health.absent.condemning:
		wait = absentAgain
	}
	if len(l.unplaced) > 0 && !l.layout.asking { // else the answer wakes it
		wait = min(wait, max(time.Until(l.layout.askedAt.Add(lookAgain)), time.Millisecond))
	}
	return wait
}

// send reads and sends as much as window and budget allow, and hears Kafka's
// answers meanwhile, so that a long burst is acknowledged as it goes.
func (s *sending) send(ctx context.Context, l *lane) (state, error) {
	for ctx.Err() == nil && l.mayLaunch(time.Now()) {
		if failed := l.takeOutcomes(); len(failed) > 0 {
			return newSettling(failed, nil), nil
		}
		if len(l.ready) == 0 {
			reserved := l.reserve()
			if reserved == 0 {
				return s, nil
			}
			if err := l.read(reserved); err != nil {
				return nil, err
			}
			continue
		}
		count, err := l.partitions()
		switch {
		case err != nil:
			return newSettling(nil, err), nil
		case count == 0:
			return s, nil // the answer will wake us
		case count != l.layout.placed && l.flights.flying > 0:
			// With another count of partitions keys have other places. What is flying
			// comes first, so that the order of each key is kept.
			return newSettling(nil, nil), nil
		}
		l.layout.placed = count
		if problem := s.launchReady(ctx, l); problem != nil {
			return &condemning{rest: l.nowhere(*problem), problem: *problem}, nil
		}
	}
	return s, nil
}

// launchReady sends what is ready, unless it has expired. What has no place in the target is set aside; when that
// was so for long, as Kafka has just said again, it stays the first that is ready, and its problem is returned.
func (s *sending) launchReady(ctx context.Context, l *lane) *message.Problem {
	now := time.Now() // for all that is ready: a read brings mostChunk at most
	for l.mayLaunch(now) && len(l.ready) > 0 && ctx.Err() == nil {
		o := l.ready[0]
		if o.mayExpire() && o.hasExpired(l.p.expiry()) {
			l.expire(len(l.ready))
			continue
		}
		partition, problem := choosePartition(&o.message, o.ref.Seq, l.layout.placed)
		switch {
		case problem != nil && o.nowhere && l.layout.isFresh():
			return problem
		case problem != nil && o.nowhere:
			l.unplaced = append(l.unplaced, l.takeReady()) // for the next answer
			l.look()
		case problem != nil:
			l.setUnplaced(l.takeReady())
			l.look()
		default:
			l.launch(l.takeReady(), partition, now)
		}
	}
	return nil
}

// nowhere returns how many of the messages that are ready have the problem of the first, that they have no place.
func (l *lane) nowhere(problem message.Problem) (n int) {
	for _, o := range l.ready {
		_, other := choosePartition(&o.message, o.ref.Seq, l.layout.placed)
		if !o.nowhere || other == nil || *other != problem {
			break
		}
		n++
	}
	return n
}

// settling is the state after a failure, and keeps invariant 1: nothing is sent until all that
// is flying has come back. What failed is then first again, in order of delivery. No other
// state follows a failure, so the order of first copies holds, whatever fails.
type settling struct {
	failed    []*outgoing
	cause     error // what Kafka answered about the target; nil: the failures are of records
	abandoned int   // records that were given up; 0: none yet
}

func newSettling(failed []*outgoing, cause error) *settling {
	return &settling{failed: failed, cause: cause}
}

func (s *settling) step(ctx context.Context, l *lane, _ event) (state, error) {
	s.failed = append(s.failed, l.takeOutcomes()...)
	if s.abandoned == 0 && l.flights.isSilent() {
		s.abandon(l)
	}
	if l.flights.flying > 0 {
		return s, nil
	}
	l.series = new(Series) // all of the last one has been heard
	cause := s.cause
	if len(s.failed) > 0 {
		slices.SortFunc(s.failed, func(a, b *outgoing) int { return a.ref.Compare(b.ref) })
		l.health.oldest = s.failed[0].ref
		l.ready = append(s.failed, l.ready...)
		if cause == nil {
			cause = worstOf(s.failed)
		}
	}
	return l.follow(ctx, cause, s.abandoned)
}

// abandon gives up what is flying, of a target that does not answer. Kafka may write it all the same.
func (s *settling) abandon(l *lane) {
	s.abandoned = l.flights.flying
	l.log.Warn("target does not answer: giving up what is on its way, outcomes unknown", "records", s.abandoned, "waited", stallAfter)
	l.p.cfg.Sink.Isolate(l.target)
}

func (s *settling) hears(l *lane) hearing {
	h := hearing{outcomes: l.outcomes.Ready()}
	if s.abandoned == 0 {
		h.until = l.flights.unansweredSince().Add(stallAfter)
	}
	return h
}

// follow does what health.judge says to a failure; nil is none. A dead letter that is refused is
// set aside and not condemned: invariant 7.
func (l *lane) follow(ctx context.Context, cause error, abandoned int) (state, error) {
	var first firstWaiting
	if cause != nil {
		first = l.firstWaiting(l.ready[0]) // what failed is always there
	}
	switch l.health.judge(cause, abandoned, first, time.Now(), l.p.now()) {
	case refuse:
		o := l.ready[0]
		l.health.answer(o.ref)
		if !o.deadLetter {
			return &condemning{rest: 1, problem: refusedProblem(l.target, o, cause)}, nil
		}
		l.setAside(ctx, l.takeReady(), cause)
	case absentTooLong:
		return &condemning{rest: l.overdue(), problem: absentProblem(l.target, first.timeout, cause)}, nil
	case backOff:
		return &backingOff{until: time.Now().Add(l.health.backoff)}, nil
	case giveUp:
		return l.park(ctx, cause, first)
	}
	return &sending{}, nil
}

func (l *lane) firstWaiting(o *outgoing) firstWaiting {
	if o.deadLetter {
		return firstWaiting{due: o.ref.Due, timeout: forever}
	}
	return firstWaiting{due: o.ref.Due, timeout: l.p.cfg.MissingTimeout(o.message.Origin.Topic)}
}

// overdue returns how many messages at the front of ready have waited for an absent target long
// enough, each as long as the first.
func (l *lane) overdue() int {
	n, timeout := 0, l.firstWaiting(l.ready[0]).timeout
	for n < len(l.ready) {
		f := l.firstWaiting(l.ready[n])
		if f.timeout != timeout || !f.isOverdue(&l.health.absent, l.p.now()) {
			break
		}
		n++
	}
	return n
}

// park gives everything back to the scheduler and ends the lane: invariant 3. When more targets
// are missing than may be, the first messages lose their delivery instead.
func (l *lane) park(ctx context.Context, cause error, first firstWaiting) (state, error) {
	counted, excess := l.countMissing(cause)
	if excess != nil {
		return excess, nil
	}
	level := slog.LevelWarn
	if l.health.onTrial {
		level = slog.LevelDebug // it was logged when it was parked first
	}
	l.log.Log(ctx, level, "target fails: parking it", "error", cause)
	l.letters.reported = false // so that the alarm rings each time
	l.p.alarm(&l.letters, cause)
	probeAfter := l.health.park(cause)
	t := newParked(l, parked{unanswered: 1, probeAfter: probeAfter, due: first.due,
		had: &hadLane{timeout: first.timeout, silentSince: l.p.moment(l.health.silentSince), afterTrial: int32(l.health.afterTrial), counted: counted}})
	l.p.cfg.Verdicts.Put(schedule.Verdict{Target: l.target, Parked: true, Returned: l.giveBack()})
	return l.end(t)
}

// countMissing counts the target among those that are missing, by more than one answer of Kafka,
// and returns the count that it is in. If as many count for that as may, the first
// messages are condemned instead.
func (l *lane) countMissing(cause error) (counted *missingCount, excess state) {
	first := l.ready[0]
	if !errors.Is(cause, ErrTargetMissing) || first.deadLetter || !l.health.absent.lasted(parkAfter) {
		return nil, nil
	}
	origin := first.message.Origin.Topic
	most := l.p.cfg.MostMissing(origin)
	if counted := l.p.missing.admit(origin, most); counted != nil {
		return counted, nil
	}
	n := 1
	for n < len(l.ready) && l.ready[n].message.Origin.Topic == origin && !l.ready[n].deadLetter {
		n++
	}
	l.health.absent.condemning = true
	return nil, &condemning{rest: n, problem: excessProblem(l.target, origin, most)}
}

// backingOff is the state between two tries of what failed.
type backingOff struct{ until time.Time }

func (s *backingOff) step(_ context.Context, _ *lane, e event) (state, error) {
	if e == timeUp {
		return &sending{}, nil
	}
	return s, nil
}

func (s *backingOff) hears(*lane) hearing { return hearing{until: s.until} }

// condemning is the state in which the first ready messages die and a dead letter takes the
// place of each. One command of the log does both, so that neither is lost or doubled:
// invariant 10.
type condemning struct {
	rest    int // of the ready messages, from the front
	problem message.Problem

	proposed int           // how many of them the command has that is on its way
	done     chan struct{} // is closed when the log has answered
	err      error         // what it has answered
}

func (s *condemning) step(ctx context.Context, l *lane, e event) (state, error) {
	switch e {
	case entered:
		if s.rest -= l.expire(s.rest); s.rest > 0 {
			l.p.condemned.Add(l.target, s.rest, "code", s.problem.Code, "reason", s.problem.Message)
		}
	case committed:
		if s.err != nil && ctx.Err() != nil {
			return &draining{}, nil
		}
		if s.err != nil {
			return nil, fmt.Errorf("dead-letter %d messages for topic %q: %w", s.proposed, l.target, s.err)
		}
		l.p.cfg.Count.DeadLettered(s.problem.Code, s.proposed)
		for range s.proposed {
			l.unload(l.takeReady())
		}
		s.rest -= s.proposed
		s.rest -= l.expire(s.rest)
	}
	if s.rest == 0 {
		return &sending{}, nil
	}
	s.propose(ctx, l)
	return s, nil
}

// propose puts the command for as many of the messages as fit into the log.
func (s *condemning) propose(ctx context.Context, l *lane) {
	replace := l.replacement(l.ready[:s.rest], s.problem)
	done := make(chan struct{})
	s.proposed, s.done = len(replace.Kills), done
	go func() {
		defer close(done)
		_, s.err = l.p.commit(ctx, replace)
	}()
}

// hears the log alone, which answers also when the term ends: before that, nobody knows whether
// the messages are alive.
func (s *condemning) hears(*lane) hearing {
	return hearing{committed: s.done, outlastTerm: true}
}

// replacement returns the command for as many of the messages as fit, at least one.
func (l *lane) replacement(condemned []*outgoing, problem message.Problem) raftfsm.Replace {
	replace := raftfsm.Replace{Time: l.p.now()}
	atOnce := l.p.cfg.Due().UnixMilli()
	bytes := 0
	for _, o := range condemned {
		m := &o.message
		due := max(min(atOnce, o.ref.Due), 0) // this leader's clock may be found to be ahead, before the letter is written
		letter := m.AsDeadLetter(problem, due)
		letter.Overdue = max(replace.Time-due, 0)
		entry := letter.Entry(due, l.p.cfg.DeadLetterFor(m.Origin.Topic), l.p.cfg.Store.Level())
		bytes += raftfsm.EntrySize(&entry)
		told := l.p.isTold(o)
		if told {
			bytes += endedBytes + len(entry.Target)
		}
		if len(replace.Kills) > 0 && bytes > raftfsm.ProposalBytes {
			break
		}
		if told {
			replace.Ended = append(replace.Ended, o.end(outcomes.Outcome{Kind: outcomes.DeadLettered, At: replace.Time, Target: entry.Target, Partition: -1, Offset: -1}))
		}
		replace.Kills = append(replace.Kills, o.ref.Seq)
		replace.Entries = append(replace.Entries, entry)
	}
	return replace
}

// draining is the state at the end of a term: what is on its way is waited for, so that it is
// not delivered twice, but not for long.
type draining struct{ until time.Time }

func (s *draining) step(_ context.Context, l *lane, e event) (state, error) {
	switch e {
	case entered:
		s.until = time.Now().Add(drainPatience)
	case resolved:
		l.takeOutcomes()
	case timeUp:
		l.p.cfg.Sink.Isolate(l.target)
		return nil, nil
	}
	if l.flights.flying == 0 {
		return nil, nil
	}
	return s, nil
}

func (s *draining) hears(l *lane) hearing {
	return hearing{outcomes: l.outcomes.Ready(), until: s.until, outlastTerm: true}
}

// end ends the lane and tells the dispatcher what is left of it: of a target that is parked, t.
func (l *lane) end(t *laneless) (state, error) {
	l.p.ended.Put(ended{l, t})
	return nil, nil
}
