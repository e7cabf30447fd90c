package draw

import (
	"math/rand/v2"
	"time"
)

// shortened has Kafka lose the newest records of a delay topic, while more come, in one of seven scripts. Mostly disks
// are slow meanwhile: what is read then waits until what was read before is in the log. It draws for itself, as paused does.
func (r *run) shortened(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 5))
	if !r.chance(0.15) {
		return
	}
	r.setting("kafka=files")
	begin := r.ready()
	for range 1 + r.IntN(3) {
		at := begin + time.Duration(r.Int64N(int64(end-begin)))
		source, begun := pick(r, r.sources...), r.before(at, r.span(time.Second, 20*time.Second))
		if r.chance(0.8) {
			r.slowAll(begun, 100*time.Millisecond, 2*time.Second)
		}
		lasts, count := at-begun+r.span(time.Second, 20*time.Second), int(r.size(20, 1000))
		r.at(begun, "produce %s count=%d about=%s key=k%% keys=%d deliver-to=%s %s", source, count, span(lasts/time.Duration(count)), r.keys, r.to(), r.due(at))
		for range 1 + r.IntN(3) {
			r.between(at, "shorten %s by=%d", source, int(r.size(1, 100)))
			at += r.span(time.Millisecond, 10*time.Second)
		}
		r.mend(at + r.span(time.Second, 30*r.unit))
	}
}
