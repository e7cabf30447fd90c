package wheel

import (
	"math/rand/v2"
	"testing"
	"time"
)

const day = 24 * 60 * 60 * 1000 // ticks of a millisecond

var sizes = []struct {
	name string
	n    int
}{{"1e4", 1e4}, {"1e6", 1e6}}

// delays returns n delays, uniform over span ticks.
func delays(n int, span uint64) []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	d := make([]uint64, n)
	for i := range d {
		d[i] = 1 + r.Uint64N(span)
	}
	return d
}

func BenchmarkFill(b *testing.B) {
	const n = 1e6
	d := delays(n, day)
	b.Run("wheel", func(b *testing.B) {
		b.ReportAllocs()
		var w *Wheel[uint64]
		for i := range b.N {
			if i%n == 0 {
				w = New[uint64](0)
			}
			w.Add(d[i%n], uint64(i))
		}
	})
	b.Run("container-heap", func(b *testing.B) {
		b.ReportAllocs()
		var q delayQueue
		for i := range b.N {
			if i%n == 0 {
				q = nil
			}
			q.add(d[i%n], uint64(i))
		}
	})
}

func BenchmarkCancelAdd(b *testing.B) {
	for _, size := range sizes {
		d := delays(size.n, day)
		b.Run("wheel/"+size.name, func(b *testing.B) {
			w := New[uint64](0)
			h := make([]Handle, size.n)
			for i := range h {
				h[i], _ = w.Add(d[i], uint64(i))
			}
			r := rand.New(rand.NewPCG(3, 4))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := r.IntN(size.n)
				w.Cancel(h[k])
				h[k], _ = w.Add(d[i%size.n], uint64(i))
			}
		})
		b.Run("container-heap/"+size.name, func(b *testing.B) {
			var q delayQueue
			h := make([]*delayed, size.n)
			for i := range h {
				h[i] = q.add(d[i], uint64(i))
			}
			r := rand.New(rand.NewPCG(3, 4))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := r.IntN(size.n)
				q.cancel(h[k])
				h[k] = q.add(d[i%size.n], uint64(i))
			}
		})
		b.Run("AfterFunc/"+size.name, func(b *testing.B) {
			h := make([]*time.Timer, size.n)
			for i := range h {
				h[i] = time.AfterFunc(time.Hour+time.Duration(d[i])*time.Millisecond, func() {})
			}
			r := rand.New(rand.NewPCG(3, 4))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := r.IntN(size.n)
				h[k].Stop()
				h[k] = time.AfterFunc(time.Hour+time.Duration(d[i%size.n])*time.Millisecond, func() {})
			}
			b.StopTimer()
			for _, t := range h {
				t.Stop()
			}
		})
	}
}

func BenchmarkStartStop(b *testing.B) {
	b.Run("wheel", func(b *testing.B) {
		w := New[uint64](0)
		b.ReportAllocs()
		for i := range b.N {
			h, _ := w.Add(1000, uint64(i))
			w.Cancel(h)
		}
	})
	b.Run("AfterFunc", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			time.AfterFunc(time.Second, func() {}).Stop()
		}
	})
}

func BenchmarkPostpone(b *testing.B) {
	const n = 1e6
	d := delays(n, day)
	w := New[uint64](0)
	h := make([]Handle, n)
	for i := range h {
		h[i], _ = w.Add(d[i], uint64(i))
	}
	r := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		k := r.IntN(n)
		h[k], _ = w.Move(h[k], day+uint64(i))
	}
}

// BenchmarkExpire moves the clock from deadline to deadline.
func BenchmarkExpire(b *testing.B) {
	spans := []struct {
		name string
		span uint64
	}{{"second", 1000}, {"minute", 60_000}, {"day", day}, {"decade", 3653 * day}, {"century", 36525 * day}}
	for _, size := range sizes {
		for _, s := range spans {
			d := delays(size.n, s.span)
			b.Run("wheel/"+size.name+"/"+s.name, func(b *testing.B) {
				benchmarkExpire(b, d, 0)
			})
			b.Run("wheel-maintained/"+size.name+"/"+s.name, func(b *testing.B) {
				benchmarkExpire(b, d, 1)
			})
			b.Run("container-heap/"+size.name+"/"+s.name, func(b *testing.B) {
				var q delayQueue
				for i := range b.N {
					if len(q) == 0 {
						b.StopTimer()
						for i, when := range d {
							q.add(when, uint64(i))
						}
						b.StartTimer()
					}
					q.pop()
					_ = i
				}
			})
		}
	}
}

func benchmarkExpire(b *testing.B, d []uint64, chunks int) {
	buf := make([]Expired[uint64], 0, 1024)
	w := New[uint64](0)
	for fired := 0; fired < b.N; {
		if w.Len() == 0 {
			b.StopTimer()
			w = New[uint64](0)
			for i, when := range d {
				w.Add(when, uint64(i))
			}
			b.StartTimer()
		}
		now, _ := w.Next()
		due, _ := w.Advance(now, buf)
		fired += len(due)
		if chunks > 0 {
			w.Maintain(now, chunks)
		}
	}
}
