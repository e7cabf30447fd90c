package draw

import (
	"math/rand/v2"
	"strings"
	"time"
)

// paused has users pause delay topics and targets, at any time, beside whatever else happens: one of them, or in
// three of ten scripts several. Half of them are targets that much is on its way to, shortly before a leader is
// struck. It draws for itself, so that all other lines of a seed stay what they are.
func (r *run) paused(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 1))
	few := 1
	if r.chance(0.3) {
		few = pick(r, 2, 4, 10)
	}
	begin := r.ready()
	upheavals := r.happened(begin, end, isUpheaval)
	for range 1 + r.IntN(few) {
		what := "topic " + pick(r, r.sources...)
		if r.chance(0.5) {
			what = "target " + r.to()
		}
		at := begin + time.Duration(r.Int64N(int64(end-begin)))
		if len(upheavals) > 0 && r.chance(0.5) {
			what = "target " + r.targets[0]
			at = max(begin, pick(r, upheavals...)-r.span(10*time.Millisecond, 10*time.Second))
			r.busy(at, r.targets[0])
		}
		for range 1 + r.IntN(3) { // again at once, at times
			r.at(at, "pause %s", what)
			at += r.span(r.unit/10, max(r.unit, (end-at)/2))
			r.between(at, "resume %s", what)
			r.awaited(at, what)
			at += r.span(time.Millisecond, 10*r.unit)
		}
	}
	if r.chance(0.2) {
		r.toAndFro(begin + time.Duration(r.Int64N(int64(end-begin))))
	}
}

// toAndFro has a target paused and resumed again and again while it gets a message in each millisecond: each time it is
// read to where messages are due right then. Where commits are quick, the next one is not due yet when that is over.
func (r *run) toAndFro(at time.Duration) {
	const target, lasts = "swing", 2 * time.Second
	r.at(at, "create %s partitions=3", target)
	first := at + r.span(5*r.unit, 20*r.unit)
	r.produce(at, int(lasts/time.Millisecond), "key=k%% deliver-to=%s %s spread=%s", target, r.until(first), span(lasts))
	for when := first; when < first+lasts; when += r.fine(80*time.Millisecond, 150*time.Millisecond) {
		r.at(when, "pause target %s", target)
		when += r.fine(20*time.Millisecond, 60*time.Millisecond)
		r.between(when, "resume target %s", target)
	}
}

// awaited has something be due for what is resumed in each millisecond about then, and while it is waited for others
// that come back, and others get theirs.
func (r *run) awaited(at time.Duration, what string) {
	source, target := pick(r, r.sources...), r.to()
	if topic, ok := strings.CutPrefix(what, "topic "); ok {
		source = topic
	} else {
		target = strings.TrimPrefix(what, "target ")
	}
	begun := r.before(at, r.span(time.Second, r.unit))
	r.at(begun, "produce %s count=200 deliver-to=%s %s spread=200ms", source, target, r.until(at-50*time.Millisecond))
	r.produce(begun, 60, "deliver-to=%s %s spread=1200ms", pick(r, r.targets...), r.until(at-600*time.Millisecond))
}

// busy has a target answer slowly about then, while messages are due for it.
func (r *run) busy(at time.Duration, topic string) {
	begun := r.before(at, r.span(time.Second, 10*time.Second))
	r.at(begun, "slow %s answer=%s", topic, span(r.fine(300*time.Millisecond, 10*time.Second)))
	r.produce(begun, 1+r.count(), "key=k%% deliver-to=%s %s spread=%s", topic, after(r.span(time.Millisecond, time.Second)), span(2*(at-begun)+time.Second))
	r.at(at+r.span(time.Second, 10*r.unit), "well %s", topic)
}
