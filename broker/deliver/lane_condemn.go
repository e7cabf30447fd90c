package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
)

// absentAgain is how long an answer that the target is absent is good for while
// messages are dead-lettered for it: one question per second, not per chunk.
const absentAgain = time.Second

// mostAbsenceGap is the longest time between two answers that prove an absence together:
// when Kafka was silent in between, nobody knows what was there meanwhile.
const mostAbsenceGap = 2 * mostAbsentProbe

// An absence is a target that is missing or forbidden. Both are the target's fault
// and not a record's, can be repaired while messages wait, and cost a message its
// delivery only after the missing timeout.
type absence struct {
	since      time.Time // zero: the target is not absent, as far as we know
	heard      time.Time // when Kafka said so last; one answer alone proves nothing
	err        error
	condemning bool // the last try cost messages their delivery
}

func isAbsent(err error) bool {
	return errors.Is(err, ErrTargetMissing) || errors.Is(err, ErrTargetForbidden)
}

// hear takes note of what Kafka said about the target.
func (a *absence) hear(err error) {
	if !isAbsent(err) {
		return
	}
	now := time.Now()
	if a.since.IsZero() || now.Sub(a.heard) > mostAbsenceGap {
		a.since = now
	}
	a.heard, a.err = now, err
}

// lasted reports whether Kafka has said it over all that time, twice at least.
func (a *absence) lasted(timeout time.Duration) bool {
	return a.heard.Sub(a.since) >= max(timeout, leastProbe)
}

// recent returns the last answer if it still will do.
func (a *absence) recent() error {
	if a.condemning && time.Since(a.heard) < absentAgain {
		return a.err
	}
	return nil
}

// missingTimeout is how long the message may wait for an absent target.
func (l *lane) missingTimeout(o *outgoing) time.Duration {
	return l.p.cfg.MissingTimeout(o.message.Origin.Topic)
}

// isOverdue reports whether the target was absent, and the message due, for as long
// as the message may wait. A dead letter waits for ever.
func (l *lane) isOverdue(o *outgoing) bool {
	return firstWaiting{o.ref.Due, l.missingTimeout(o), o.deadLetter}.isOverdue(&l.absent, l.p.now())
}

// condemnOverdue dead-letters the messages at the front of ready that have waited
// for an absent target long enough, and reports whether there were any.
func (l *lane) condemnOverdue(ctx context.Context, cause error) (bool, error) {
	n := 0
	for n < len(l.ready) && l.isOverdue(l.ready[n]) && l.missingTimeout(l.ready[n]) == l.missingTimeout(l.ready[0]) {
		n++
	}
	l.absent.condemning = n > 0
	if n == 0 {
		return false, nil
	}
	timeout := l.missingTimeout(l.ready[0])
	problem := message.Problem{Code: message.CodeTargetMissing, Message: fmt.Sprintf("topic %q was missing for missing_target_timeout %v: %v: create the topic, or correct what names it: deliver-to, routes[].to or the name of the delay topic", l.target, timeout, cause)}
	if errors.Is(cause, ErrTargetForbidden) {
		problem = message.Problem{Code: message.CodeTargetForbids, Message: fmt.Sprintf("topic %q was forbidden for missing_target_timeout %v: %v: allow Write and Describe on the topic", l.target, timeout, cause)}
	}
	return true, l.condemn(ctx, n, problem)
}

// condemn has the first n ready messages die and a dead letter each take their
// place, in one command of the log, so that neither is lost or doubled.
func (l *lane) condemn(ctx context.Context, n int, problem message.Problem) error {
	l.p.condemned.Add(l.target, n, "code", problem.Code, "reason", problem.Message)
	for n > 0 {
		replace := l.replacement(l.ready[:n], problem)
		done := len(replace.Kills)
		if _, err := l.p.commit(ctx, replace); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("dead-letter %d messages for topic %q: %w", done, l.target, err)
		}
		l.p.cfg.Count.DeadLettered(problem.Code, done)
		for _, o := range l.ready[:done] {
			l.unload(o)
		}
		clear(l.ready[:done]) // payloads
		l.ready = l.ready[done:]
		n -= done
	}
	return nil
}

// replacement returns the command for as many of the messages as fit, at least one.
func (l *lane) replacement(condemned []*outgoing, problem message.Problem) raftfsm.Replace {
	replace := raftfsm.Replace{Time: l.p.now()}
	bytes := 0
	for _, o := range condemned {
		m := &o.message
		letter := m.AsDeadLetter(problem, replace.Time)
		entry := letter.Entry(replace.Time, l.p.cfg.DeadLetterFor(m.Origin.Topic), l.p.cfg.Store.Level())
		bytes += raftfsm.EntrySize(&entry)
		if len(replace.Kills) > 0 && bytes > raftfsm.ProposalBytes {
			break
		}
		replace.Kills = append(replace.Kills, o.ref.Seq)
		replace.Entries = append(replace.Entries, entry)
	}
	return replace
}

// missingNames counts, for each delay topic, the missing targets that its messages wait
// for. A target counts for the delay topic of the message that is first in line, while it
// is parked. It is used by many goroutines.
type missingNames struct {
	mu    sync.Mutex
	count map[string]int
}

// admit counts one more, unless there are that many already; 0: there is no bound.
func (m *missingNames) admit(origin string, most int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if most > 0 && m.count[origin] >= most {
		return false
	}
	m.count[origin]++
	return true
}

func (m *missingNames) release(origin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count[origin]--; m.count[origin] <= 0 {
		delete(m.count, origin)
	}
}

// condemnExcess dead-letters the messages at the front of ready when their target is
// missing, by more than one answer of Kafka, and as many targets of their delay topic as
// may be are missing already. It reports whether there were any.
func (l *lane) condemnExcess(ctx context.Context, cause error) (bool, error) {
	first := l.ready[0]
	if !errors.Is(cause, ErrTargetMissing) || first.deadLetter || !l.absent.lasted(parkAfter) {
		return false, nil
	}
	origin := first.message.Origin.Topic
	most := l.p.cfg.MostMissing(origin)
	if l.p.missing.admit(origin, most) {
		l.admitted = origin
		return false, nil
	}
	n := 1
	for n < len(l.ready) && l.ready[n].message.Origin.Topic == origin && !l.ready[n].deadLetter {
		n++
	}
	l.absent.condemning = true
	return true, l.condemn(ctx, n, message.Problem{Code: message.CodeTooManyMissing, Message: fmt.Sprintf(
		"topic %q does not exist, and messages of %q wait for %d others that do not, as many as max_missing_targets of its route allows: create the topic, correct what names it (deliver-to, routes[].to or the name of the delay topic), or raise max_missing_targets",
		l.target, origin, most)})
}

// isExcess reports whether a missing target may be one too many: then it goes on trial, so
// that its first message is read and its delay topic is known.
func (d *dispatcher) isExcess(t *parkedTarget, cause error) bool {
	most := d.p.cfg.LeastMostMissing
	return most > 0 && len(d.others) > most && t.origin == "" && !t.first.forever && !t.letters.takes &&
		errors.Is(cause, ErrTargetMissing) && t.absent.lasted(parkAfter)
}

// uncount notes that a target is not one of those that wait any more.
func (d *dispatcher) uncount(t *parkedTarget) {
	if t.origin != "" {
		d.p.missing.release(t.origin)
		t.origin = ""
	}
}
