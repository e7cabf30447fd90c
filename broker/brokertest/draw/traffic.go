package draw

import (
	"fmt"
	"strings"
	"time"
)

// A delay draws the header that says when records produced at a time are due.
type delay func(r *run, at time.Duration) string

func delays() []delay {
	return []delay{
		func(r *run, _ time.Duration) string { return after(r.span(time.Millisecond, 500*time.Millisecond)) },
		func(r *run, _ time.Duration) string { return after(r.span(r.unit/10, 10*r.unit)) },
		func(r *run, _ time.Duration) string {
			return after(r.span(r.unit, 30*r.unit)) + " spread=" + span(r.span(r.unit/10, 30*r.unit))
		},
		func(r *run, _ time.Duration) string {
			return after(r.span(r.unit, r.horizon)) + " spread=" + span(r.span(r.unit, r.horizon/2))
		},
		pastDue, pastDue,
		instant, instant,
	}
}

func after(d time.Duration) string { return "deliver-after=" + span(d) }

// until writes a moment, counted from the beginning of the script.
func (r *run) until(at time.Duration) string {
	moment := birth().Add(at)
	if r.chance(0.3) {
		return fmt.Sprintf("deliver-at=%d", moment.UnixMilli())
	}
	return "deliver-at=" + moment.Format("2006-01-02T15:04:05.000Z07:00")
}

// pastDue is due already, by less than a tick or by much.
func pastDue(r *run, at time.Duration) string {
	if r.chance(0.3) {
		return "deliver-after=" + pick(r, "0s", "1ms")
	}
	return r.until(at - r.span(time.Millisecond, 60*r.unit))
}

// instant is one of few moments for everything: it may be over.
func instant(r *run, at time.Duration) string {
	moment := pick(r, r.instants...)
	if moment < at && r.chance(0.7) {
		moment = at + r.span(r.unit, 20*r.unit)
		r.instants = append(r.instants, moment)
	}
	return r.until(moment)
}

func (r *run) due(at time.Duration) string { return pick(r, r.delays...)(r, at) }

// count draws how many records a line produces.
func (r *run) count() int { return 1 + int(r.size(1, float64(2*r.records))) }

// A shape is a kind of traffic, as real users have it.
type shape func(r *run, at time.Duration)

func shapes() []shape {
	return []shape{
		steady, steady, rush, ladder, timeouts, hotTenant, manyTargets, absent, poison,
		large, inTransactions, placed, trickle, seldom, plateau, plateau, replay, replay,
		chosen, chosen, chosen, expiring,
	}
}

func (r *run) produce(at time.Duration, count int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if strings.Contains(text, "key=k%") { // several of each, so that their order is looked at
		text = fmt.Sprintf("keys=%d ", r.keys) + text
	}
	r.at(at, "produce %s count=%d %s", pick(r, r.sources...), count, text)
}

// to draws a target that exists; the one of trouble is one of two.
func (r *run) to() string {
	if r.chance(0.5) {
		return r.targets[0]
	}
	return pick(r, r.targets...)
}

func steady(r *run, at time.Duration) {
	for range 1 + r.IntN(4) {
		r.produce(at, r.count(), "key=k%% deliver-to=%s %s", r.to(), r.due(at))
		at += r.span(r.unit/10, 5*r.unit)
	}
}

// rush is much at once, of which much is due at once.
func rush(r *run, at time.Duration) {
	r.produce(at, 5*r.count(), "deliver-to=%s %s", r.to(), instant(r, at))
}

// ladder is what retries look like: the same keys with ever longer delays.
func ladder(r *run, at time.Duration) {
	wait := r.unit / 4
	for range 3 + r.IntN(3) {
		r.produce(at, 1+r.count()/4, "key=retry%% deliver-to=%s %s", r.to(), after(wait))
		at += wait
		wait *= time.Duration(2 + r.IntN(3))
		wait = min(wait, r.horizon)
	}
}

// timeouts all wait equally long.
func timeouts(r *run, at time.Duration) {
	wait, target := r.span(r.unit, 60*r.unit), r.to()
	for range 2 + r.IntN(4) {
		r.produce(at, r.count(), "key=payment%% deliver-to=%s %s", target, after(wait))
		at += r.span(r.unit/10, 3*r.unit)
	}
}

func hotTenant(r *run, at time.Duration) {
	r.produce(at, 3*r.count(), "key=hot deliver-to=%s %s", r.to(), r.due(at))
	r.produce(at, 1+r.count()/10, "key=k%% deliver-to=%s %s", r.to(), r.due(at))
}

func manyTargets(r *run, at time.Duration) {
	if r.many == 0 {
		r.many = int(r.size(5, 200))
		r.at(at, "create t%% count=%d", r.many)
	}
	r.produce(at, min(r.many, 200)+r.count(), "deliver-to=t%% targets=%d %s", r.many, r.due(at))
}

// absent is for a topic that does not exist yet.
func absent(r *run, at time.Duration) {
	name := pick(r, r.missing...)
	r.produce(at, r.count(), "deliver-to=%s %s", name, r.due(at))
	if name != "never" && r.chance(0.3) {
		r.at(at+r.span(r.unit, 60*r.unit), "create %s partitions=%d", name, 1+r.IntN(2))
	}
}

// poison cannot be scheduled, or not be delivered.
func poison(r *run, at time.Duration) {
	r.produce(at, 1+r.IntN(5), "%s", pick(r,
		"value=no-time-%",
		"value=months-% deliver-after=P1M",
		"value=seconds-% deliver-at=1700000000",
		"value=denied-% deliver-after=1s deliver-to=__secret",
		"value=typo-% deliver-after=1s deliver-cron=*",
		"value=zone-% deliver-at=2000-01-01T00:00:00+24:00",
		"value=name-% deliver-after=1s deliver-to=not/a/name",
	))
	r.produce(at, 1+r.IntN(20), "deliver-to=%s %s", r.to(), r.due(at))
}

func large(r *run, at time.Duration) {
	r.produce(at, 1+r.IntN(8), "bytes=%d deliver-to=%s %s", int(r.size(1<<10, 900<<10)), r.to(), r.due(at))
	r.produce(at, r.count(), "deliver-to=%s %s", r.to(), r.due(at))
}

func inTransactions(r *run, at time.Duration) {
	for range 1 + r.IntN(3) {
		how := pick(r, "transactional", "transactional abort")
		r.produce(at, r.count(), "%s deliver-to=%s %s", how, r.to(), r.due(at))
		at += r.span(r.unit/10, 3*r.unit)
	}
}

// placed says itself where it belongs in the target.
func placed(r *run, at time.Duration) {
	how := pick(r, "deliver-partition=0", "deliver-key=other")
	r.produce(at, r.count(), "%s deliver-to=%s %s", how, r.to(), r.due(at))
}

// trickle is one record after the other.
func trickle(r *run, at time.Duration) {
	r.produce(at, min(r.count(), 100), "about=%s key=k%% deliver-to=%s %s", span(r.span(time.Millisecond, r.unit/10)), r.to(), r.due(at))
}

// replay has the events of some time come once more, in no order, with the times that they had then.
func replay(r *run, at time.Duration) {
	ago := r.span(10*time.Millisecond, 60*r.unit)
	r.stream(at, "scatter=%s key=k%% deliver-to=%s %s", span(ago), r.to(), r.until(at-ago))
}

// stream is produced one after the other, within some seconds: while it comes other things happen.
func (r *run) stream(at time.Duration, format string, args ...any) {
	count := 10 + r.count()
	about := r.span(time.Millisecond, 20*time.Second/time.Duration(count))
	r.produce(at, count, "about=%s %s", span(about), fmt.Sprintf(format, args...))
}

// seldom is one message in a while, about when what served the last one is given up: half a minute
// after Kafka has answered.
func seldom(r *run, at time.Duration) {
	gap := pick(r, 29900*time.Millisecond, 30*time.Second, 30*time.Second+r.answer, 30*time.Second+r.answer, 30100*time.Millisecond, r.span(time.Minute, 5*time.Minute))
	target := pick(r, "seldom", "seldom", r.to()) // one that nobody else writes to, or any
	r.at(at, "create seldom")
	for n := range 6 + r.IntN(6) {
		r.produce(at, 1, "deliver-to=%s %s", target, r.until(at+r.unit+time.Duration(n)*gap))
	}
}

// produceFar is due when all nodes are stopped, or after that.
func (r *run) produceFar(at time.Duration) {
	for range 1 + r.IntN(3) {
		due := r.span(time.Hour, r.far+r.horizon)
		r.produce(at, r.count(), "deliver-to=%s %s spread=%s", r.to(), after(due), span(r.span(r.unit, r.horizon/4)))
	}
}
