package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/storage"
)

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
	t := &parkedTarget{name: l.target, state: held, index: -1, probeAfter: probeAfter, absent: l.absent, letters: l.letters}
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
