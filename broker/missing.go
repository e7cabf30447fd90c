package broker

import (
	"context"
	"errors"
	"fmt"
	"github.com/carillonmq/carillon/broker/message"
	"sync"
)

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
