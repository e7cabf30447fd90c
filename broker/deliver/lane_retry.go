package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

const (
	// settlePatience is how long what is flying may take to be resolved after a
	// failure.
	settlePatience = 3 * time.Second
	// parkAfter is how long a target may fail without any success.
	parkAfter = 2 * time.Second
	// The wait before failed records are sent again, doubling each time.
	leastBackoff = 50 * time.Millisecond
	mostBackoff  = time.Second
)

// health is how a lane's target has been doing.
type health struct {
	failingSince time.Time     // first failure since the last success; zero: none
	backoff      time.Duration // last wait; until the oldest of the failed gets through
	oldest       storage.Ref
	onTrial      bool          // nothing has succeeded since it was parked
	probeAfter   time.Duration // wait before the next probe
}

func (h *health) fail(since time.Time) {
	if h.failingSince.IsZero() {
		h.failingSince = since
	}
}

func (h *health) succeed(ref storage.Ref) {
	h.failingSince = time.Time{}
	h.onTrial = false
	if ref == h.oldest {
		h.backoff = 0
	}
}

func (h *health) nextBackoff() time.Duration {
	h.backoff = min(max(2*h.backoff, leastBackoff), mostBackoff)
	return h.backoff
}

// isStuck reports whether to stop trying: one failure on trial is enough.
func (h *health) isStuck() bool {
	return h.onTrial || time.Since(h.failingSince) >= parkAfter
}

// isPermanent reports whether Kafka blamed a record and not the target. It may
// have blamed the wrong one: all that is buffered for a partition fails with it.
func isPermanent(err error) bool {
	return errors.Is(err, ErrRecordTooLarge) || errors.Is(err, ErrRecordRefused)
}

// regroup deals with a failure, of records that came back or of asking for the
// target's partitions (cause). Nothing is sent until all that is flying has come
// back; then what failed is first again, in order of delivery. So the order of
// first copies holds, whatever fails.
func (l *lane) regroup(ctx context.Context, cause error) error {
	if !l.settle(ctx) {
		return nil
	}
	failed := l.failed
	l.failed = nil
	if len(failed) > 0 {
		slices.SortFunc(failed, func(a, b *outgoing) int { return a.ref.Compare(b.ref) })
		l.health.oldest = failed[0].ref
		l.ready = append(failed, l.ready...)
		if cause == nil {
			cause = worstOf(failed)
		}
	}
	switch {
	case cause == nil:
		return nil
	case !isPermanent(cause):
		return l.hold(ctx, cause)
	case l.window > 1:
		l.window = 1 // only what fails alone is to blame
		return nil
	default:
		return l.refused(ctx, cause)
	}
}

// settle waits until nothing is flying; what Kafka does not answer in time is
// given up. It reports false when ctx ended first.
func (l *lane) settle(ctx context.Context) bool {
	if l.await(ctx.Done(), settlePatience) {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	l.p.cfg.Sink.Isolate(l.target)
	for l.flying > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-l.outcomes.Ready():
			l.takeOutcomes()
		}
	}
	return true
}

// worstOf returns the error that decides what to do with all that failed.
func worstOf(failed []*outgoing) error {
	for _, o := range failed {
		if isPermanent(o.err) {
			return o.err
		}
	}
	return failed[0].err
}

// hold waits a little before the next try. A target that fails for long is parked;
// one that is absent for long costs its overdue messages their delivery.
func (l *lane) hold(ctx context.Context, cause error) error {
	l.health.fail(time.Now())
	if isAbsent(cause) {
		if condemned, err := l.condemnOverdue(ctx, cause); condemned {
			return err
		}
	} else {
		l.absent = absence{}
	}
	if l.health.isStuck() {
		if condemned, err := l.condemnExcess(ctx, cause); condemned {
			return err
		}
		l.park(ctx, cause)
		return nil
	}
	timer := time.NewTimer(l.health.nextBackoff())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// refused deals with the one record that was sent alone and that the topic, as it
// is, will not take.
func (l *lane) refused(ctx context.Context, cause error) error {
	o := l.ready[0]
	l.health.succeed(o.ref) // the target answers
	if o.deadLetter {
		l.setAside(ctx, o, cause)
		return nil
	}
	problem := message.Problem{Code: message.CodeRefused, Message: fmt.Sprintf("topic %q refuses the record for what is in it: %v: %s", l.target, cause, refusedRemedy)}
	if errors.Is(cause, ErrRecordTooLarge) {
		problem = message.Problem{Code: message.CodeTooLarge, Message: fmt.Sprintf("record with a value of %d bytes is larger than topic %q takes: %v: raise max.message.bytes of the topic or send less", len(o.message.Value), l.target, cause)}
	}
	return l.condemn(ctx, 1, problem)
}
