package draw

import (
	"math/rand/v2"
	"time"
)

// paused has users pause delay topics and targets, at any time, beside whatever else happens: one of them, or in
// three of ten scripts several. It draws for itself, so that all other lines of a seed stay what they are.
func (r *run) paused(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 1))
	few := 1
	if r.chance(0.3) {
		few = pick(r, 2, 4, 10)
	}
	begin := r.ready()
	for range 1 + r.IntN(few) {
		what := "topic " + pick(r, r.sources...)
		if r.chance(0.5) {
			what = "target " + r.to()
		}
		at := begin + time.Duration(r.Int64N(int64(end-begin)))
		for range 1 + r.IntN(3) { // again at once, at times
			r.at(at, "pause %s", what)
			at += r.span(r.unit/10, max(r.unit, (end-at)/2))
			r.at(at, "resume %s", what)
			at += r.span(time.Millisecond, 10*r.unit)
		}
	}
}
