package timer_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

// BenchmarkService_Drain takes a million timers out, and tells how long others wait for the service
// meanwhile.
func BenchmarkService_Drain(b *testing.B) {
	const n = 1_000_000
	s, err := timer.New(timer.Config[int, int]{Fire: func(timer.Event[int, int]) {}})
	if err != nil {
		b.Fatal(err)
	}
	var longest time.Duration
	for b.Loop() {
		b.StopTimer()
		for i := range n {
			if _, err := s.Set(i, i, time.Hour+rand.N(24*time.Hour)); err != nil {
				b.Fatal(err)
			}
		}
		var asking sync.WaitGroup
		asking.Go(func() {
			for pending := n; pending > 0; {
				start := time.Now()
				pending = s.Len()
				longest = max(longest, time.Since(start))
			}
		})
		b.StartTimer()
		if _, err := s.Drain(); err != nil {
			b.Fatal(err)
		}
		asking.Wait()
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-wait-ms")
	if _, err := s.Stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}
