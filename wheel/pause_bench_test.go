package wheel

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkDistance is the table of costs by distance: 100,000 timers, uniform
// over the span, added and then fired from deadline to deadline.
func BenchmarkDistance(b *testing.B) {
	const n = 100_000
	for _, s := range []struct {
		name string
		span uint64
	}{
		{"1ms", 1}, {"1s", 1000}, {"1min", 60_000}, {"1h", day / 24}, {"1d", day},
		{"30d", 30 * day}, {"1y", 365 * day}, {"10y", 3653 * day}, {"100y", century},
	} {
		b.Run(s.name, func(b *testing.B) {
			d := delays(n, s.span)
			buf := make([]Expired[uint64], 0, 1024)
			var adding, firing time.Duration
			for b.Loop() {
				w := New[uint64](1)
				begin := cpuTime()
				for i, when := range d {
					w.Add(when, uint64(i))
				}
				adding += cpuTime() - begin
				begin = cpuTime()
				for next, ok := w.Next(); ok; next, ok = w.Next() {
					w.Advance(next, buf)
				}
				firing += cpuTime() - begin
			}
			per := float64(b.N) * n
			b.ReportMetric(float64(adding.Nanoseconds())/per, "cpu-ns/add")
			b.ReportMetric(float64(firing.Nanoseconds())/per, "cpu-ns/fire")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkPause is how long single calls of Advance take, in CPU time: the
// caller wakes at each deadline and once a second, and does the given chunks of
// Maintain then. Of several passes, which make the same calls, the lowest time of
// each call counts: a virtual machine that is stopped for a while counts that, too.
func BenchmarkPause(b *testing.B) {
	for _, c := range []struct {
		name   string
		n      int
		first  uint64
		span   uint64
		chunks int
	}{
		{"1e7-in-a-day", 1e7, 0, day, 0},
		{"1e7-in-a-day/maintained", 1e7, 0, day, 1},
		{"1e6-in-a-second", 1e6, day / 2, 1000, 0},
		{"1e6-in-a-second/maintained", 1e6, day / 2, 1000, 64},
		{"1e6-on-one-tick", 1e6, day / 2, 1, 0},
		{"1e6-on-one-tick/maintained", 1e6, day / 2, 1, 64},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := delays(c.n, c.span)
			var took []time.Duration
			var ticks []int
			for b.Loop() {
				w := New[uint64](0)
				for i, when := range d {
					w.Add(c.first+when, uint64(i))
				}
				lowest := took
				took, ticks = pauses(w, c.chunks)
				for i := range lowest {
					took[i] = min(took[i], lowest[i])
				}
			}
			b.ReportMetric(micros(longestTick(took, ticks)), "longest-tick-µs")
			slices.Sort(took)
			b.ReportMetric(micros(took[len(took)-1]), "longest-µs")
			b.ReportMetric(micros(took[len(took)-1-len(took)/10_000]), "p99.99-µs")
		})
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// longestTick returns the longest time that all calls for one tick took together.
func longestTick(took []time.Duration, ticks []int) (longest time.Duration) {
	first := 0
	for _, end := range ticks {
		var all time.Duration
		for _, d := range took[first:end] {
			all += d
		}
		longest = max(longest, all)
		first = end
	}
	return longest
}

// pauses fires all timers of w. It returns the CPU times of the calls of Advance,
// and after how many of them each tick was done.
func pauses(w *Wheel[uint64], chunks int) (took []time.Duration, ticks []int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]Expired[uint64], 0, 1024)
	took = make([]time.Duration, 0, 2*w.Len()+100_000) // no collection on its account
	ticks = make([]int, 0, 2*w.Len()+100_000)
	for now := uint64(0); w.Len() > 0; {
		next, _ := w.Next()
		now = min(next, now+1000)
		for more := true; more; {
			begin := threadTime()
			_, more = w.Advance(now, buf)
			took = append(took, threadTime()-begin)
		}
		ticks = append(ticks, len(took))
		if chunks > 0 {
			w.Maintain(now, chunks)
		}
	}
	return took, ticks
}
