package timer_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

func TestDelayQueue_seesAForwardStepWithinItsLongestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		start := time.Now()
		var steps []time.Duration
		q := timer.NewDelayQueue[int](timer.QueueConfig{
			Now:    c.now,
			OnStep: func(d time.Duration) { steps = append(steps, d) },
		})
		mustAdd(t, q, c.in(time.Hour), 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			c.set(2 * time.Hour)
		}()
		sleepUntilPop(q)
		if got := time.Since(start); got > time.Second {
			t.Errorf("the step was seen after %v, want a second at most", got)
		}
		if !slices.Equal(steps, []time.Duration{2 * time.Hour}) {
			t.Errorf("steps reported: %v, want one of 2h", steps)
		}
	})
}

func TestDelayQueue_afterABackwardStepNothingIsEarlyAndNewDelaysAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		var steps []time.Duration
		q := timer.NewDelayQueue[string](timer.QueueConfig{
			Now:    c.now,
			OnStep: func(d time.Duration) { steps = append(steps, d) },
		})
		time.Sleep(time.Second)
		old := c.in(10 * time.Millisecond)
		handle := mustAdd(t, q, old, "old")
		mustAdd(t, q, old+1, "other")
		popAll(q)

		c.set(-time.Hour)
		stepped := time.Now()
		mustAdd(t, q, c.in(10*time.Millisecond), "new")
		if got := sleepUntilPop(q); !slices.Equal(got, []string{"new"}) {
			t.Fatalf("first came %v, want new", got)
		}
		if got := time.Since(stepped); got != 10*time.Millisecond {
			t.Errorf("a delay of 10ms took %v", got)
		}
		handle, ok := q.Move(handle, old+5) // handles outlive the step
		if !ok {
			t.Error("the handle from before the step is stale")
		}
		if got := sleepUntilPop(q); !slices.Equal(got, []string{"other"}) {
			t.Errorf("then came %v, want the other old timer", got)
		}
		if now := c.now().UnixMilli(); now != old+1 {
			t.Errorf("it came at %d by the clock, want its deadline %d", now, old+1)
		}
		if !q.Cancel(handle) {
			t.Error("the moved handle is stale")
		}
		if !slices.Equal(steps, []time.Duration{-time.Hour}) {
			t.Errorf("steps reported: %v, want one of -1h", steps)
		}
	})
}

func TestDelayQueue_aFalseFutureDelaysNothingAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[int](timer.QueueConfig{Now: c.now})
		future := mustAdd(t, q, c.in(time.Hour), 1)
		c.set(365 * 24 * time.Hour)
		if got := popAll(q); len(got) != 1 {
			t.Fatalf("a year later %v had come out, want the one timer", got)
		}
		c.set(-365 * 24 * time.Hour)
		h := mustAdd(t, q, c.in(time.Minute), 2)
		if h == future {
			t.Error("a handle from before names a new timer")
		}
		if q.Cancel(future) {
			t.Error("a handle from before cancelled a new timer")
		}
		start := time.Now()
		sleepUntilPop(q)
		if got := time.Since(start); got != time.Minute {
			t.Errorf("a delay of 1m took %v", got)
		}
	})
}

func TestMonotonic_doesNotRunBackwardsOrAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := timer.Monotonic()
		first := now()
		time.Sleep(time.Hour + time.Nanosecond)
		if got := now().Sub(first); got != time.Hour+time.Nanosecond {
			t.Errorf("the clock went %v in an hour and a nanosecond", got)
		}
	})
}

func TestCeilMilli_roundsUp(t *testing.T) {
	for _, tt := range []struct {
		in   time.Time
		want int64
	}{
		{time.UnixMilli(7), 7},
		{time.UnixMilli(7).Add(1), 8},
		{time.UnixMilli(8).Add(-1), 8},
		{time.UnixMilli(-7).Add(1), -6},
		{time.UnixMilli(-7).Add(-1), -7},
		{time.Unix(math.MaxInt64/1000-1, 999_999_999), math.MaxInt64 / 1000 * 1000},
		{time.Unix(math.MaxInt64/1000, 807e6+1), math.MaxInt64},
		{time.Unix(1<<62, 0), math.MaxInt64},
		{time.Unix(math.MinInt64/1000, 0), math.MinInt64 / 1000 * 1000},
		{time.Unix(-1<<62, 0), math.MinInt64},
	} {
		if got := timer.CeilMilli(tt.in); got != tt.want {
			t.Errorf("CeilMilli(%v) = %d, want %d", tt.in.UTC(), got, tt.want)
		}
	}
}
