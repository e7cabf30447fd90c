package timer_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

func TestStopAgainstFire_exactlyOneWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timers = 2000
		var fired [timers]atomic.Int32
		s, err := timer.New(timer.Config[int, int]{
			Workers: 4,
			Fire:    func(e timer.Event[int, int]) { fired[e.Key].Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		var handles [timers]*timer.Timer[int, int]
		for i := range timers {
			handles[i], _ = s.Set(i, 0, time.Second)
		}
		var stopped [timers]bool
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				time.Sleep(time.Second) // wakes in the very moment of firing
				for i := w; i < timers; i += 4 {
					if i%2 == 0 {
						stopped[i] = handles[i].Stop()
					} else {
						_, stopped[i] = s.Remove(i)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		for i := range timers {
			count, state := fired[i].Load(), handles[i].State()
			if stopped[i] && (count != 0 || state != timer.Stopped) || !stopped[i] && (count != 1 || state != timer.Fired) {
				t.Fatalf("timer %d: stopped %v, fired %d times, state %v", i, stopped[i], count, state)
			}
		}
		if _, err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Every key is either fired, removed, drained or returned by Stop, once per successful Set of a key
// that was not pending.
func TestService_underConcurrentUseLosesAndDoublesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set, ended atomic.Int64
		s, err := timer.New(timer.Config[int, int]{
			Workers: 3, Queue: 4, MaxPending: 50,
			Fire: func(e timer.Event[int, int]) {
				ended.Add(1)
				time.Sleep(time.Duration(e.Value) * time.Millisecond)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(w)))
				for i := range 2000 {
					key, delay := w<<16|rnd.IntN(10), time.Duration(rnd.IntN(20))*time.Millisecond
					switch rnd.IntN(5) {
					case 0, 1:
						if _, err := s.Set(i<<19|w<<16|100, rnd.IntN(3), delay); err == nil {
							set.Add(1)
						}
					case 2:
						if _, ok := s.Remove(key); ok {
							ended.Add(1)
						}
						if _, err := s.Set(key, rnd.IntN(3), delay); err == nil {
							set.Add(1)
						}
					case 3:
						_ = s.Move(key, delay) // may just have fired
					case 4:
						time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
					}
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				time.Sleep(50 * time.Millisecond)
				events, err := s.Drain()
				if err != nil {
					t.Error(err)
				}
				ended.Add(int64(len(events)))
			}
		})
		wg.Wait()
		unfired, err := s.Stop(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ended.Add(int64(len(unfired)))
		if set.Load() == 0 || set.Load() != ended.Load() {
			t.Errorf("%d timers set, %d ended", set.Load(), ended.Load())
		}
	})
}
