package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillonmq/carillon/storage"
)

const (
	// The wait between probes of a parked target, doubling while they fail and while
	// the target, fed again, fails at once.
	leastProbe = 100 * time.Millisecond
	mostProbe  = 5 * time.Second
)

// park gives everything back to the scheduler and probes until the target works.
func (l *lane) park(ctx context.Context, cause error) error {
	level := slog.LevelWarn
	if l.health.onTrial {
		level = slog.LevelDebug // it was said when it was parked first
		l.health.probeAfter = min(2*l.health.probeAfter, mostProbe)
	} else {
		l.health.probeAfter = leastProbe
	}
	l.log.Log(ctx, level, "target fails: parking it", "error", cause)
	first := l.ready[0] // what failed is always there
	if l.takesDeadLetters {
		l.log.Error("dead letters cannot be written and wait: repair the dead-letter topic or let this node write to it", "error", cause)
		l.p.cfg.Count.DeadLetterStuck()
		l.reportUnwritable(cause)
	}
	first = &outgoing{ref: first.ref, deadLetter: first.deadLetter, message: Message{Origin: first.message.Origin}} // no payload
	l.giveBack()
	l.health.backoff = 0
	return l.probe(ctx, first)
}

// parkAsTold begins with a target that the scheduler says is parked; a lane that
// has work knows better.
func (l *lane) parkAsTold(ctx context.Context) error {
	l.told = false
	if l.flying > 0 || len(l.ready) > 0 || len(l.waiting) > 0 {
		l.p.cfg.Verdicts.Put(verdict{Target: l.target})
		return nil
	}
	l.health.probeAfter = 0
	return l.probe(ctx, nil)
}

// giveBack returns all that the lane holds and has not sent to the scheduler.
func (l *lane) giveBack() {
	refs := make([]storage.Ref, 0, len(l.ready)+len(l.waiting))
	for _, o := range l.ready {
		refs = append(refs, o.ref)
		l.unload(o)
	}
	refs = append(refs, l.waiting...)
	for _, letter := range l.aside.letters {
		refs = append(refs, letter.ref)
	}
	l.ready, l.waiting, l.aside = nil, nil, aside{}
	l.unanswered++
	l.p.cfg.Verdicts.Put(verdict{Target: l.target, Parked: true, Returned: refs})
}

// probe waits until the target works, or until its absence is to cost the first
// message its delivery, and has it fed again: on trial. What the scheduler hands
// over meanwhile, not knowing better, goes back; the target is not fed again before
// the scheduler has answered to all that went back.
func (l *lane) probe(ctx context.Context, first *outgoing) error {
	l.p.cfg.Count.Parked(1)
	defer l.p.cfg.Count.Parked(-1)
	timer := time.NewTimer(l.health.probeAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.orders.Ready():
			l.takeOrders()
			l.told = false
			if len(l.waiting) > 0 {
				l.giveBack()
			}
		case <-timer.C:
			if l.unanswered == 0 && l.mayResume(ctx, first) {
				l.resume()
				return nil
			}
			l.health.probeAfter = min(max(2*l.health.probeAfter, leastProbe), mostProbe)
			timer.Reset(l.health.probeAfter)
		}
	}
}

// mayResume asks Kafka. When the target is absent and it is not known what waits
// for it (first is nil), a trial will tell.
func (l *lane) mayResume(ctx context.Context, first *outgoing) bool {
	_, err := l.partitions(ctx)
	switch {
	case err == nil:
		return true
	case isAbsent(err) && first == nil:
		return true
	}
	l.reportUnwritable(err)
	return isAbsent(err) && l.isOverdue(first)
}

func (l *lane) resume() {
	l.health.onTrial = true
	l.health.failingSince = time.Time{}
	l.window = 1
	l.chunk = leastChunk
	l.p.cfg.Verdicts.Put(verdict{Target: l.target})
}
