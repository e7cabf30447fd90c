package wheel

import (
	"math/rand/v2"
	"testing"
	"time"
)

const day = 24 * 60 * 60 * 1000 // ticks of a millisecond

// delays returns n delays, uniform over span ticks.
func delays(n int, span uint64) []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	d := make([]uint64, n)
	for i := range d {
		d[i] = 1 + r.Uint64N(span)
	}
	return d
}

// A stopwatch measures CPU time next to the benchmark's wall time.
type stopwatch struct {
	b     *testing.B
	total time.Duration
	since time.Duration
}

// watch begins to measure; everything before it was preparation.
func watch(b *testing.B) *stopwatch {
	b.ReportAllocs()
	b.ResetTimer()
	return &stopwatch{b: b, since: cpuTime()}
}

func (s *stopwatch) pause() {
	s.b.StopTimer()
	s.total += cpuTime() - s.since
}

func (s *stopwatch) resume() {
	s.since = cpuTime()
	s.b.StartTimer()
}

func (s *stopwatch) report() {
	s.pause()
	s.b.ReportMetric(float64(s.total.Nanoseconds())/float64(s.b.N), "cpu-ns/op")
}

// BenchmarkFill adds to an empty structure, up to a million timers.
func BenchmarkFill(b *testing.B) {
	const n = 1_000_000
	d := delays(n, day)
	b.Run("wheel", func(b *testing.B) {
		var w *Wheel[uint64]
		s := watch(b)
		for i := range b.N {
			if i%n == 0 {
				w = New[uint64](0)
			}
			w.Add(d[i%n], uint64(i))
		}
		s.report()
	})
	b.Run("container-heap", func(b *testing.B) {
		var q delayQueue
		s := watch(b)
		for i := range b.N {
			if i%n == 0 {
				q = nil
			}
			q.add(d[i%n], uint64(i))
		}
		s.report()
	})
}

// BenchmarkCancelAdd cancels a random one of a million timers and adds another. Two
// orders take turns, since memory lies in the order of what was done last.
func BenchmarkCancelAdd(b *testing.B) {
	const n = 1_000_000
	d := delays(n, day)
	r := rand.New(rand.NewPCG(3, 4))
	order := append(r.Perm(n), r.Perm(n)...)
	b.Run("wheel", func(b *testing.B) {
		w := New[uint64](0)
		h := make([]Handle, n)
		for i := range h {
			h[i], _ = w.Add(d[i], uint64(i))
		}
		s := watch(b)
		for i := range b.N {
			k := order[i%(2*n)]
			w.Cancel(h[k])
			h[k], _ = w.Add(d[i%n], uint64(i))
		}
		s.report()
	})
	b.Run("container-heap", func(b *testing.B) {
		var q delayQueue
		h := make([]*delayed, n)
		for i := range h {
			h[i] = q.add(d[i], uint64(i))
		}
		s := watch(b)
		for i := range b.N {
			k := order[i%(2*n)]
			q.cancel(h[k])
			h[k] = q.add(d[i%n], uint64(i))
		}
		s.report()
	})
	b.Run("AfterFunc", func(b *testing.B) {
		h := make([]*time.Timer, n)
		for i := range h {
			h[i] = time.AfterFunc(time.Hour+time.Duration(d[i])*time.Millisecond, func() {})
		}
		s := watch(b)
		for i := range b.N {
			k := order[i%(2*n)]
			h[k].Stop()
			h[k] = time.AfterFunc(time.Hour+time.Duration(d[i%n])*time.Millisecond, func() {})
		}
		s.report()
		for _, t := range h {
			t.Stop()
		}
	})
}

// BenchmarkStartStop cancels each timer right after adding it, among none others.
func BenchmarkStartStop(b *testing.B) {
	b.Run("wheel", func(b *testing.B) {
		w := New[uint64](0)
		s := watch(b)
		for i := range b.N {
			h, _ := w.Add(1000, uint64(i))
			w.Cancel(h)
		}
		s.report()
	})
	b.Run("AfterFunc", func(b *testing.B) {
		s := watch(b)
		for range b.N {
			time.AfterFunc(time.Second, func() {}).Stop()
		}
		s.report()
	})
}

// BenchmarkPostpone moves a random one of a million timers to a later tick.
func BenchmarkPostpone(b *testing.B) {
	const n = 1_000_000
	d := delays(n, day)
	w := New[uint64](0)
	h := make([]Handle, n)
	for i := range h {
		h[i], _ = w.Add(d[i], uint64(i))
	}
	r := rand.New(rand.NewPCG(3, 4))
	s := watch(b)
	for i := range b.N {
		k := r.IntN(n)
		h[k], _ = w.Move(h[k], day+uint64(i))
	}
	s.report()
}

// BenchmarkExpire moves the clock from deadline to deadline, a million pending
// at first.
func BenchmarkExpire(b *testing.B) {
	const n = 1_000_000
	for _, c := range []struct {
		name string
		span uint64
	}{{"second", 1000}, {"minute", 60_000}, {"day", day}, {"decade", 3653 * day}} {
		d := delays(n, c.span)
		b.Run("wheel/"+c.name, func(b *testing.B) { benchmarkExpire(b, d, 0) })
		b.Run("wheel-maintained/"+c.name, func(b *testing.B) { benchmarkExpire(b, d, 1) })
		b.Run("container-heap/"+c.name, func(b *testing.B) {
			var q delayQueue
			s := watch(b)
			for range b.N {
				if len(q) == 0 {
					s.pause()
					for i, when := range d {
						q.add(when, uint64(i))
					}
					s.resume()
				}
				q.pop()
			}
			s.report()
		})
	}
}

func benchmarkExpire(b *testing.B, d []uint64, chunks int) {
	buf := make([]Expired[uint64], 0, 1024)
	w := New[uint64](0)
	s := watch(b)
	for fired := 0; fired < b.N; {
		if w.Len() == 0 {
			s.pause()
			w = New[uint64](0)
			for i, when := range d {
				w.Add(when, uint64(i))
			}
			s.resume()
		}
		now, _ := w.Next()
		due, _ := w.Advance(now, buf)
		fired += len(due)
		if chunks > 0 {
			w.Maintain(now, chunks)
		}
	}
	s.report()
}
