package deliver

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

// This file decides, and does nothing: time is an argument.

const (
	// parkAfter is how long a target may fail without any success.
	parkAfter = 2 * time.Second
	// The wait before failed records are sent again, doubling each time.
	leastBackoff = 50 * time.Millisecond
	mostBackoff  = time.Second
	// absentAgain is how long an answer that the target is absent is good for while
	// messages are dead-lettered for it: one question per second, not per chunk.
	absentAgain = time.Second
	// mostAbsenceGap is the longest time between two answers that prove an absence together:
	// when Kafka was silent in between, nobody knows what was there meanwhile.
	mostAbsenceGap = 2 * mostAbsentProbe
)

// health is how a lane's target has been doing.
type health struct {
	window       int           // most records flying at a time; one: sent alone
	widest       int           // that it may be: Limits.Flying, or what lane.widen says
	failingSince time.Time     // first failure since the last success; zero: none
	backoff      time.Duration // last wait; until the oldest of the failed gets through
	oldest       storage.Ref
	blamed       storage.Ref   // the oldest of the failed when Kafka blamed a record last; zero: it never did
	onTrial      bool          // nothing has succeeded since it was parked
	afterTrial   int           // the window once one has succeeded: half of what was given up last, if the window was no wider since
	probeAfter   time.Duration // wait before the next probe
	silentSince  time.Time     // since then no try was answered, in each of its trials; zero: one was
	absent       absence
}

// A remedy is what follows a failure.
type remedy uint8

const (
	goOn          remedy = iota // send again, alone if the window is one now
	refuse                      // the first ready message, which was sent alone, is refused
	absentTooLong               // the first ready messages have waited for the absent target long enough
	backOff                     // wait for health.backoff
	giveUp                      // the target has failed for too long: park it
)

// judge decides what follows a failure, now that nothing is flying any more and what failed
// is first of what is ready. A cause of nil says that nobody failed. So many as were abandoned may have
// been written all the same. The leader's clock is in epoch milliseconds.
//
// Only what fails alone is refused, which is invariant 2: the Kafka client fails all that it
// holds for a partition with one guilty record, and so each is sent by itself. Nor is what fails for the first time: what the
// client knows of the topic, such as the size that it takes, may be from before the topic was created again, and is asked for
// anew after each failure. A dead letter is not lost by a refusal, and needs no second one.
func (h *health) judge(cause error, abandoned int, first firstWaiting, now time.Time, clock int64) remedy {
	if abandoned > 0 && !h.onTrial { // a trial is one record, which proves nothing of more
		h.afterTrial = max(abandoned/2, 1)
	}
	switch {
	case cause == nil:
		return goOn
	case isPermanent(cause) && (h.window > 1 || h.blamed != h.oldest && first.timeout != forever):
		h.window, h.blamed = 1, h.oldest
		return goOn
	case isPermanent(cause):
		return refuse
	}
	h.fail(now)
	if abandoned > 0 && !h.onTrial {
		h.window = min(h.afterTrial, h.widest)
	}
	if !isAbsent(cause) {
		h.absent = absence{}
	}
	h.absent.condemning = isAbsent(cause) && first.isOverdue(&h.absent, clock)
	switch {
	case h.absent.condemning:
		return absentTooLong
	case h.onTrial || now.Sub(h.failingSince) >= parkAfter:
		return giveUp // one failure on trial is enough
	}
	h.backoff = min(max(2*h.backoff, leastBackoff), mostBackoff)
	return backOff
}

func (h *health) fail(since time.Time) {
	if h.failingSince.IsZero() {
		h.failingSince = since
	}
}

// succeed notes that a record got through. What passed its trial works, and may have a long backlog: it need not feel its
// way as behind a record that was refused. It is sent half of what was given up last, and all if nothing was: invariant 13.
func (h *health) succeed(ref storage.Ref) {
	if h.onTrial {
		h.window = h.afterTrial
	}
	h.window = min(h.window+1, h.widest)
	h.afterTrial = max(h.afterTrial, h.window)
	h.answer(ref)
	h.absent = absence{}
}

// answer notes that the target took the record, or refused it for what is in it.
func (h *health) answer(ref storage.Ref) {
	h.failingSince, h.silentSince = time.Time{}, time.Time{}
	h.onTrial = false
	if ref == h.oldest {
		h.backoff = 0
	}
}

// park returns how long to wait for the first probe of the target, which is parked: the more
// often it failed on trial, the longer. One that an earlier term has parked is probed at once, so
// there was no wait before its first trial.
//
// A trial that ended without an answer may have left a copy that Kafka writes later, each time.
// So how long that has been is noted for the wait before the next.
func (h *health) park(cause error) time.Duration {
	switch {
	case !errors.Is(cause, ErrAbandoned):
		h.silentSince = time.Time{}
	case h.silentSince.IsZero():
		h.silentSince = h.failingSince
	}
	if h.onTrial {
		return min(max(2*h.probeAfter, leastProbe), mostProbe)
	}
	return leastProbe
}

// isPermanent reports whether Kafka blamed a record and not the target. It may
// have blamed the wrong one: all that is buffered for a partition fails with it.
func isPermanent(err error) bool {
	return errors.Is(err, ErrRecordTooLarge) || errors.Is(err, ErrRecordRefused)
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

// An absence is a target that is missing or forbidden. Both are the target's fault
// and not a record's, can be repaired while messages wait, and cost a message its
// delivery only after the missing timeout.
type absence struct {
	since      time.Time // zero: the target is not absent, as far as we know
	heard      time.Time // when Kafka last answered so; one answer alone proves nothing
	err        error
	condemning bool // the last try cost messages their delivery
}

func isAbsent(err error) bool {
	return errors.Is(err, ErrTargetMissing) || errors.Is(err, ErrTargetForbidden)
}

// hear takes note of what Kafka answered about the target.
func (a *absence) hear(err error, now time.Time) {
	if !isAbsent(err) {
		return
	}
	if a.since.IsZero() || now.Sub(a.heard) > mostAbsenceGap {
		a.since = now
	}
	a.heard, a.err = now, err
}

// lasted reports whether Kafka has answered so over all that time, in two answers at least.
func (a *absence) lasted(timeout time.Duration) bool {
	return a.heard.Sub(a.since) >= max(timeout, leastProbe)
}

// recent returns the last answer if it still will do.
func (a *absence) recent(now time.Time) error {
	if a.condemning && now.Sub(a.heard) < absentAgain {
		return a.err
	}
	return nil
}

// A firstWaiting is what is known of the message that is first in line for a target.
type firstWaiting struct {
	due     int64         // epoch milliseconds
	timeout time.Duration // how long it may wait for an absent target; forever: it is a dead letter
}

// forever is for what never loses its delivery to an absence.
const forever time.Duration = math.MaxInt64

// isOverdue reports whether the target was absent, and the message due, for as long
// as the message may wait. No other message loses its delivery to an absence: invariant 6.
func (f firstWaiting) isOverdue(absent *absence, clock int64) bool {
	return f.timeout != forever && absent.lasted(f.timeout) && f.due <= clock-f.timeout.Milliseconds()
}

// What dead letters say of the reason.

func absentProblem(target string, timeout time.Duration, cause error) message.Problem {
	if errors.Is(cause, ErrTargetForbidden) {
		return message.Problem{Code: message.CodeTargetForbids, Message: fmt.Sprintf("topic %q was forbidden for missing_target_timeout %v: %v: allow Write and Describe on the topic", target, timeout, cause)}
	}
	return message.Problem{Code: message.CodeTargetMissing, Message: fmt.Sprintf("topic %q was missing for missing_target_timeout %v: %v: create the topic, or correct what names it: deliver-to, routes[].to or the name of the delay topic", target, timeout, cause)}
}

func excessProblem(target, origin string, most int) message.Problem {
	return message.Problem{Code: message.CodeTooManyMissing, Message: fmt.Sprintf(
		"topic %q does not exist, and messages of %q wait for %d others that do not, as many as max_missing_targets of its route allows: create the topic, correct what names it (deliver-to, routes[].to or the name of the delay topic), or raise max_missing_targets",
		target, origin, most)}
}

func refusedProblem(target string, o *outgoing, cause error) message.Problem {
	if errors.Is(cause, ErrRecordTooLarge) {
		return message.Problem{Code: message.CodeTooLarge, Message: fmt.Sprintf("record with a value of %d bytes is larger than topic %q takes: %v: raise max.message.bytes of the topic or send less", len(o.message.Value), target, cause)}
	}
	return message.Problem{Code: message.CodeRefused, Message: fmt.Sprintf("topic %q refuses the record for what is in it: %v: %s", target, cause, refusedRemedy)}
}
