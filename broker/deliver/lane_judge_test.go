package deliver

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// What follows a failure, by what is known of the target before it.
func TestJudge_sendsWaitsRefusesCondemnsOrGivesUp(t *testing.T) {
	now := time.Now()
	clock := now.UnixMilli()
	absent := func(since, heard time.Duration) absence {
		return absence{since: now.Add(-since), heard: now.Add(-heard)}
	}
	overdue := firstWaiting{due: clock - testTimeout.Milliseconds(), timeout: testTimeout}
	early := firstWaiting{due: overdue.due + 1, timeout: testTimeout}
	letter := firstWaiting{due: overdue.due, timeout: forever}
	ref, other := storage.Ref{Due: 2, Seq: 2}, storage.Ref{Due: 1, Seq: 1}
	for name, test := range map[string]struct {
		health health
		cause  error
		first  firstWaiting
		want   remedy
		after  func(health) bool
	}{
		"nobody failed":                 {health{window: 8}, nil, early, goOn, func(h health) bool { return h.window == 8 }},
		"one of many is to blame":       {health{window: 8}, ErrRecordTooLarge, early, goOn, func(h health) bool { return h.window == 1 }},
		"it was alone":                  {health{window: 1}, ErrRecordRefused, early, refuse, nil},
		"alone, for the first time":     {health{window: 1, oldest: ref, blamed: other}, ErrRecordTooLarge, early, goOn, func(h health) bool { return h.window == 1 && h.blamed == ref }},
		"alone, once more":              {health{window: 1, oldest: ref, blamed: ref}, ErrRecordTooLarge, early, refuse, nil},
		"a dead letter, alone":          {health{window: 1, oldest: ref, blamed: other}, ErrRecordTooLarge, letter, refuse, nil},
		"blamed alone on trial":         {health{window: 1, onTrial: true}, ErrRecordRefused, early, refuse, nil},
		"the first failure":             {health{window: 8}, ErrTargetUnavailable, early, backOff, func(h health) bool { return h.backoff == leastBackoff && h.failingSince.Equal(now) }},
		"one after another":             {health{window: 8, backoff: leastBackoff}, ErrTargetUnavailable, early, backOff, func(h health) bool { return h.backoff == 2*leastBackoff }},
		"long waits stay what they are": {health{window: 8, backoff: mostBackoff}, ErrAbandoned, early, backOff, func(h health) bool { return h.backoff == mostBackoff }},
		"failing for nearly too long":   {health{failingSince: now.Add(time.Millisecond - parkAfter)}, ErrTargetUnavailable, early, backOff, nil},
		"failing for too long":          {health{failingSince: now.Add(-parkAfter)}, ErrTargetUnavailable, early, giveUp, nil},
		"one failure on trial":          {health{onTrial: true}, ErrTargetUnavailable, early, giveUp, nil},
		"absent, and overdue as long":   {health{absent: absent(testTimeout, 0)}, ErrTargetMissing, overdue, absentTooLong, func(h health) bool { return h.absent.condemning }},
		"absent on trial, and overdue":  {health{onTrial: true, absent: absent(testTimeout, 0)}, ErrTargetForbidden, overdue, absentTooLong, nil},
		"absent, due a moment later":    {health{onTrial: true, absent: absent(testTimeout, 0)}, ErrTargetMissing, early, giveUp, func(h health) bool { return !h.absent.condemning }},
		"absent, not for long enough":   {health{absent: absent(testTimeout-1, 0)}, ErrTargetMissing, overdue, backOff, nil},
		"absent by an answer of before": {health{absent: absent(2*testTimeout, testTimeout+1)}, ErrTargetMissing, overdue, backOff, nil},
		"absent, but a dead letter":     {health{onTrial: true, absent: absent(testTimeout, 0)}, ErrTargetMissing, letter, giveUp, nil},
		"absent once, there now":        {health{absent: absent(testTimeout, 0)}, ErrTargetUnavailable, overdue, backOff, func(h health) bool { return h.absent == absence{} }},
	} {
		h := test.health
		if got := h.judge(test.cause, 0, test.first, now, clock); got != test.want || test.after != nil && !test.after(h) {
			t.Errorf("%s: remedy %d, want %d; then %+v", name, got, test.want, h)
		}
	}
}

// What was given up Kafka may write all the same, and so it may what follows: half as much does, but for a trial, which
// is one record and proves nothing of more. A record that Kafka blames, of many, is no less to be found for that.
func TestJudge_sendsHalfOfWhatWasGivenUp(t *testing.T) {
	for _, test := range []struct {
		cause         error
		abandoned     int
		onTrial       bool
		want          remedy
		window, after int // then, and after a trial
	}{
		{ErrAbandoned, 8, false, backOff, 4, 4},
		{ErrTargetUnavailable, 5, false, backOff, 2, 2},
		{ErrAbandoned, 1, false, backOff, 1, 1},
		{ErrAbandoned, 80, false, backOff, 32, 40}, // more flew when Kafka was faster
		{ErrAbandoned, 1, true, giveUp, 8, 16},
		{ErrTargetUnavailable, 0, false, backOff, 8, 16},
		{ErrRecordRefused, 5, false, goOn, 1, 2},
	} {
		h := health{window: 8, widest: 32, afterTrial: 16, onTrial: test.onTrial}
		if got := h.judge(test.cause, test.abandoned, firstWaiting{}, time.Now(), 0); got != test.want || h.window != test.window || h.afterTrial != test.after {
			t.Errorf("%+v: remedy %d, then %d may fly, and %d after a trial", test, got, h.window, h.afterTrial)
		}
	}
}

// A backlog behind a target that works again is thousands of messages; whatever else feels its way sends
// twice as much each time.
func TestHealth_widensByEachSuccess(t *testing.T) {
	trial := health{window: 1, widest: mostFlying, afterTrial: mostFlying, onTrial: true}
	if trial.succeed(storage.Ref{}); trial.window != mostFlying || trial.onTrial {
		t.Errorf("%d may fly, on trial: %t", trial.window, trial.onTrial)
	}
	h := health{window: 1, widest: 20, afterTrial: 2}
	var windows []int
	for range 6 {
		windows = append(windows, h.window)
		for range h.window {
			h.succeed(storage.Ref{})
		}
	}
	if want := []int{1, 2, 4, 8, 16, 20}; !slices.Equal(windows, want) || h.afterTrial != 20 {
		t.Errorf("so many may fly: %v, want %v; after a trial %d", windows, want, h.afterTrial)
	}
}

// When Kafka said nothing for long, nobody knows whether the target was there meanwhile: the absence begins anew.
func TestAbsence_isNotProvenAcrossASilence(t *testing.T) {
	begun := time.Now()
	for gap, want := range map[time.Duration]bool{mostAbsenceGap: true, mostAbsenceGap + time.Millisecond: false} {
		var a absence
		for i := range 3 {
			a.hear(ErrTargetMissing, begun.Add(time.Duration(i)*gap))
		}
		if got := a.lasted(2 * mostAbsenceGap); got != want {
			t.Errorf("three answers %v apart prove an absence of %v: %v, want %v", gap, 2*mostAbsenceGap, got, want)
		}
	}
}
