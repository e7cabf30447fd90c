package deliver

import (
	"container/heap"
	"context"
	"log/slog"
	"time"

	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/storage"
)

const (
	// The wait between probes of a parked target, doubling while they fail and while
	// the target, fed again, fails at once.
	leastProbe = 100 * time.Millisecond
	mostProbe  = 5 * time.Second
	// A target that is absent for long is asked for less often: after a twelfth of that
	// time, and each minute at least. mostAbsenceGap must be longer.
	absentShare     = 12
	mostAbsentProbe = time.Minute
	// trialGap is the time between the trials of two absent targets, to which messages
	// for each are read: when a hundred thousand of them have been missing for long
	// enough, some are condemned and the others wait.
	trialGap = 2 * time.Millisecond
	// trialPatience is how long an absent target on trial is kept in mind without a message: the
	// scheduler may have much to read for others first, and does not say when nothing waits.
	trialPatience = 15 * time.Minute
)

// A parkedState says how a target without a lane stands.
type parkedState uint8

const (
	// unseen: Kafka is asked whether it exists. What was handed over waits here.
	unseen parkedState = iota
	// stuck: everything was given back to the scheduler, which feeds it again when a
	// probe says so.
	stuck
	// onTrial: the scheduler may feed it again. Its lane begins with the next message.
	onTrial
)

// A parkedTarget is a target without a lane.
type parkedTarget struct {
	name  string
	state parkedState
	asked bool // there will be an answer; otherwise it is in wakes
	trial bool // it goes on trial when it wakes, though it is absent
	// unanswered counts the verdicts of being parked to which the scheduler has not
	// answered with a probe order.
	unanswered int
	waiting    []storage.Ref // unseen: what was handed over
	since      time.Time     // unseen: when the first was; on trial: when that began
	backoff    time.Duration // unseen: wait before it is asked again
	probeAfter time.Duration // stuck: wait before the next probe
	absent     absence
	first      firstWaiting
	origin     string // the delay topic for which it counts as missing; empty: it does not
	letters    letters
	wake       time.Time
	index      int // in wakes; -1: not there
}

// A firstWaiting is what is known of the message that a parked target begins with.
type firstWaiting struct {
	due     int64         // epoch milliseconds
	timeout time.Duration // how long it may wait for an absent target
	forever bool          // a dead letter, which may wait for ever
}

// isOverdue reports whether the target was absent, and the message due, for as long
// as the message may wait.
func (f firstWaiting) isOverdue(absent *absence, now int64) bool {
	return !f.forever && absent.lasted(f.timeout) && f.due <= now-f.timeout.Milliseconds()
}

// take hears what the scheduler wants of a target without a lane.
func (d *dispatcher) take(t *parkedTarget, orders []order) {
	var back []storage.Ref
	for i, o := range orders {
		switch {
		case o.probe && t.unanswered > 0:
			t.unanswered--
		case o.probe:
			d.told(t)
		case t.state == unseen:
			t.waiting = append(t.waiting, o.Ref)
		case t.state == stuck:
			back = append(back, o.Ref) // the scheduler does not know better
		default:
			d.begin(t, PartitionCount{}, orders[i:])
			return
		}
	}
	if len(back) > 0 {
		d.giveBack(t, back)
	}
}

// told begins with a target that the scheduler says is parked, as the claim of an
// earlier term has it; one that has something to send knows better.
func (d *dispatcher) told(t *parkedTarget) {
	switch {
	case len(t.waiting) > 0:
		d.p.cfg.Verdicts.Put(schedule.Verdict{Target: t.name})
	case t.state != stuck:
		t.state = stuck
		t.first = firstWaiting{timeout: d.p.cfg.LeastMissingTimeout}
		d.p.cfg.Count.Parked(1)
		if !t.asked {
			d.wakeAfter(t, 0)
		}
	}
}

// hear decides by what Kafka has said of the target.
func (d *dispatcher) hear(t *parkedTarget, heard PartitionCount) {
	t.absent.hear(heard.Err)
	switch {
	case t.state == onTrial:
		d.wakeAfter(t, idleAfter)
	case t.state == unseen && heard.Err == nil && len(t.waiting) == 0:
		d.forget(t)
	case t.state == unseen && heard.Err == nil:
		d.begin(t, heard, nil)
	case t.state == unseen && time.Since(t.since) < parkAfter:
		t.backoff = min(max(2*t.backoff, leastBackoff), mostBackoff)
		d.wakeAfter(t, t.backoff)
	case t.state == unseen:
		d.park(t, heard.Err)
	case t.unanswered == 0 && heard.Err == nil:
		d.resume(t)
	case t.unanswered == 0 && isAbsent(heard.Err) && t.first.isOverdue(&t.absent, d.p.now()) && d.planTrial(t):
	case t.unanswered == 0 && d.isExcess(t, heard.Err) && d.planTrial(t):
	default:
		if heard.Err != nil {
			d.p.alarm(&t.letters, heard.Err)
		}
		d.wakeAfter(t, d.nextProbe(t))
	}
	t.absent.err = nil // of a hundred thousand it would be some megabytes
}

// planTrial has an absent target tried in its turn, and reports whether that is soon.
func (d *dispatcher) planTrial(t *parkedTarget) bool {
	now := time.Now()
	if d.trials.Before(now) {
		d.trials = now
	}
	wait := d.trials.Sub(now)
	if wait > mostAbsentProbe/2 {
		return false // Kafka's answer would be old
	}
	t.trial = true
	d.wakeAfter(t, wait)
	d.trials = d.trials.Add(trialGap)
	return true
}

// wake does what it is time for.
func (d *dispatcher) wake(t *parkedTarget) {
	switch {
	case t.state == onTrial && !t.absent.since.IsZero() && time.Since(t.since) < trialPatience:
		d.ask(t) // or it would have to be absent as long again
	case t.state == onTrial: // and was not fed: nothing waits
		t.letters.relieve()
		d.forget(t)
	case t.unanswered > 0:
		t.trial = false
		d.wakeAfter(t, d.nextProbe(t))
	case t.trial:
		t.trial = false
		d.resume(t)
	default:
		d.ask(t)
	}
}

// ask has the prober ask, at once only the first time: of a hundred thousand names that
// are missing, some are given back in each second, and no claim has them all.
func (d *dispatcher) ask(t *parkedTarget) {
	t.asked = true
	if t.state == unseen && t.backoff == 0 {
		d.p.prober.ask(t.name)
	} else {
		d.p.prober.probe(t.name)
	}
}

// nextProbe returns how long to wait for the next look at a parked target. It comes in
// time for the end of what the first message may wait.
func (d *dispatcher) nextProbe(t *parkedTarget) time.Duration {
	t.probeAfter = min(max(2*t.probeAfter, leastProbe), mostProbe)
	if t.absent.since.IsZero() || t.letters.takes { // there are few of these, and somebody repairs them
		return t.probeAfter
	}
	lasted := time.Since(t.absent.since)
	wait := max(t.probeAfter, min(lasted/absentShare, mostAbsentProbe))
	overdue := time.Duration(t.first.due-d.p.now())*time.Millisecond + t.first.timeout
	if left := max(overdue, t.first.timeout-lasted); left > 0 && !t.first.forever {
		wait = min(wait, left)
	}
	return wait
}

// park gives everything back of a target that Kafka does not say to exist.
func (d *dispatcher) park(t *parkedTarget, cause error) {
	if time.Since(d.warned) >= time.Second { // a line for each of a million names would help nobody
		d.p.log.Warn("target fails: parking it", "target", t.name, "error", cause)
		d.warned = time.Now()
	}
	d.p.alarm(&t.letters, cause)
	t.state = stuck
	t.first = firstWaiting{due: t.waiting[0].Due, timeout: d.p.cfg.LeastMissingTimeout}
	d.p.cfg.Count.Parked(1)
	d.giveBack(t, t.waiting)
	t.waiting = nil
	t.probeAfter = leastProbe
	d.wakeAfter(t, t.probeAfter)
}

func (d *dispatcher) giveBack(t *parkedTarget, refs []storage.Ref) {
	t.unanswered++
	d.p.cfg.Verdicts.Put(schedule.Verdict{Target: t.name, Parked: true, Returned: refs})
}

// resume has the target fed again, on trial.
func (d *dispatcher) resume(t *parkedTarget) {
	t.state, t.since = onTrial, time.Now()
	d.uncount(t)
	d.p.cfg.Count.Parked(-1)
	d.p.cfg.Verdicts.Put(schedule.Verdict{Target: t.name})
	d.wakeAfter(t, idleAfter)
}

func (d *dispatcher) wakeAfter(t *parkedTarget, wait time.Duration) {
	t.wake = time.Now().Add(wait)
	if t.index >= 0 {
		heap.Fix(&d.wakes, t.index)
	} else {
		heap.Push(&d.wakes, t)
	}
}

// A wakeQueue is a heap of targets by the time at which to look at them.
type wakeQueue []*parkedTarget

func (q wakeQueue) Len() int           { return len(q) }
func (q wakeQueue) Less(i, j int) bool { return q[i].wake.Before(q[j].wake) }
func (q wakeQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *wakeQueue) Push(x any) {
	t := x.(*parkedTarget)
	t.index = len(*q)
	*q = append(*q, t)
}
func (q *wakeQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = -1
	return t
}

// park gives everything back to the scheduler and ends the lane. What the dispatcher
// keeps is in parked.
func (l *lane) park(ctx context.Context, cause error) {
	level := slog.LevelWarn
	if l.health.onTrial {
		level = slog.LevelDebug // it was said when it was parked first
		l.health.probeAfter = min(2*l.health.probeAfter, mostProbe)
	} else {
		l.health.probeAfter = leastProbe
	}
	l.log.Log(ctx, level, "target fails: parking it", "error", cause)
	l.letters.reported = false // once more
	l.p.alarm(&l.letters, cause)
	first := l.ready[0] // what failed is always there
	l.parked = l.asParked(l.health.probeAfter)
	l.parked.first = firstWaiting{due: first.ref.Due, timeout: l.missingTimeout(first), forever: first.deadLetter}
	l.parked.origin = l.admitted
	l.parked.unanswered = 1
	l.p.cfg.Verdicts.Put(schedule.Verdict{Target: l.target, Parked: true, Returned: l.giveBack()})
}

// parkAsTold ends a lane whose target the scheduler says is parked; one that has work
// knows better.
func (l *lane) parkAsTold() {
	l.told = false
	if !l.isIdle() {
		l.p.cfg.Verdicts.Put(schedule.Verdict{Target: l.target})
		return
	}
	l.parked = l.asParked(0)
	l.parked.first = firstWaiting{timeout: l.p.cfg.LeastMissingTimeout}
}

// asParked returns what is kept of the target without a lane.
func (l *lane) asParked(probeAfter time.Duration) *parkedTarget {
	t := &parkedTarget{name: l.target, state: stuck, index: -1, probeAfter: probeAfter, absent: l.absent, letters: l.letters}
	t.absent.err, t.absent.condemning = nil, false
	return t
}

// giveBack empties the lane and returns all that it held and has not sent.
func (l *lane) giveBack() []storage.Ref {
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

// onTrial makes a new lane careful: its target has been parked. One failure parks it
// again, for longer than probeAfter.
func (l *lane) onTrial(probeAfter time.Duration) {
	l.health.onTrial = true
	l.health.probeAfter = probeAfter
	l.window = 1
}
