package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A wrongClock is a wall clock that can be set.
type wrongClock struct {
	offset time.Duration
	gap    time.Duration // that one reading takes, once
}

func (w *wrongClock) now() time.Time {
	if gap := w.gap; gap > 0 {
		w.gap = 0
		now := time.Now().Add(w.offset)
		time.Sleep(gap) // the processor is lost between the two readings
		return now
	}
	return time.Now().Add(w.offset)
}

func newTestClock(w *wrongClock, steps *[]time.Duration) *Clock {
	return New(Config{Wall: w.now, MaxSkew: 500 * time.Millisecond, OnStep: func(d time.Duration) { *steps = append(*steps, d) }})
}

func TestClock_standsStillFromTheFirstReadingAfterAStep(t *testing.T) {
	for _, step := range []time.Duration{year, -year, 501 * time.Millisecond, -501 * time.Millisecond, 200 * year, -200 * year} {
		synctest.Test(t, func(t *testing.T) {
			var w wrongClock
			var steps []time.Duration
			c := newTestClock(&w, &steps)
			for range 3 {
				time.Sleep(time.Minute)
				c.Due()
			}
			w.offset = step
			begin := time.Now()
			stop := c.Due()
			if stop.After(begin) {
				t.Errorf("step %v: messages are due by %v after it", step, stop.Sub(begin))
			}
			time.Sleep(3 * time.Second)
			if due := c.Due(); !due.Equal(stop) {
				t.Errorf("step %v: the time went on by %v", step, due.Sub(stop))
			}
			if now := c.Now(); !now.Equal(begin.Add(3 * time.Second)) {
				t.Errorf("step %v: now is %v off", step, now.Sub(begin.Add(3*time.Second)))
			}
			select {
			case <-c.Left():
			default:
				t.Errorf("step %v: nobody is told", step)
			}
			if len(steps) != 1 || c.State().Stops != 1 {
				t.Errorf("step %v: steps %v and %d stops told", step, steps, c.State().Stops)
			}
			w.offset = -250 * year
			if due := c.Due(); due.After(c.Wall()) {
				t.Errorf("step %v: messages are due by %v after the clock", step, due.Sub(c.Wall()))
			}
			w.offset = 0
			if due := c.Due(); !due.Equal(time.Now()) || c.State().Stopped {
				t.Errorf("step %v: due %v off though the clock came back", step, time.Until(due))
			}
		})
	}
}

// The clock is a year ahead for a moment. A goroutine that reads it then loses its processor before
// it says so, and another reads the clock that came back.
func TestClock_goesByNoReadingThatWasOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wrongClock
		var steps []time.Duration
		c := newTestClock(&w, &steps)
		time.Sleep(time.Minute)
		c.Due()
		w.offset = year
		read := time.Now()
		wall, at := c.sample()
		w.offset = 0
		time.Sleep(time.Millisecond)
		c.Due()
		if s := c.take(wall, at); s.stopped || !s.wall.Equal(read) {
			t.Errorf("stopped %v, messages are due by %v after the reading", s.stopped, s.wall.Sub(read))
		}
		if len(steps) != 0 || c.State().Stops != 0 {
			t.Errorf("steps %v and %d stops told", steps, c.State().Stops)
		}
	})
}

func TestClock_followsWhatIsNoStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wrongClock
		var steps []time.Duration
		c := newTestClock(&w, &steps)
		for range 1000 { // slewing, as fast as chrony does
			time.Sleep(time.Second)
			w.offset += 83 * time.Millisecond
			c.Due()
		}
		w.offset += 400 * time.Millisecond // a small step
		c.Due()
		w.gap = 5 * time.Second // a process without processor
		if due := c.Due(); c.State().Stops != 0 || !due.Equal(time.Now().Add(w.offset)) {
			t.Errorf("stopped %d times, due is %v off", c.State().Stops, due.Sub(time.Now().Add(w.offset)))
		}
		if len(steps) != 1 {
			t.Errorf("steps %v, want the one of 400ms", steps)
		}
	})
}

// Where others confirm it the right time does not follow the wall clock, so that many small steps
// are no way around them.
func TestClock_isBoundToWhatOthersConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wrongClock
		var steps []time.Duration
		c := newTestClock(&w, &steps)
		right := time.Now
		compare := func() Verdict {
			var readings []Reading
			for _, member := range []string{"n2", "n3"} {
				asked := c.Elapsed()
				time.Sleep(2 * time.Millisecond)
				r, usable := c.Measure(member, right().Add(-time.Millisecond), asked, c.Elapsed())
				if !usable {
					t.Fatal("an answer of 2 ms is of no use")
				}
				readings = append(readings, r)
			}
			v := c.Judge(readings)
			c.Settle(v)
			return v
		}
		if v := compare(); v.Standing != Agreed || v.Skew != 0 {
			t.Fatalf("verdict %+v", v)
		}
		for range 2 {
			w.offset += 300 * time.Millisecond
			c.Due()
		}
		if !c.State().Stopped {
			t.Errorf("%v ahead of the others and not stopped", w.offset)
		}
		if v := compare(); v.Standing != Skewed || v.Skew != w.offset {
			t.Errorf("verdict %+v, want skewed by %v", v, w.offset)
		}
		right = func() time.Time { return time.Now().Add(w.offset) } // all were set
		if v := compare(); v.Standing != Agreed || c.State().Stopped {
			t.Errorf("verdict %+v, stopped %v", v, c.State().Stopped)
		}
		if due := c.Due(); !due.Equal(right()) {
			t.Errorf("due %v off", due.Sub(right()))
		}
	})
}

func TestClock_hasNoUseForSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wrongClock
		c := newTestClock(&w, nil)
		asked := c.Elapsed()
		time.Sleep(501 * time.Millisecond)
		if r, usable := c.Measure("n2", time.Now(), asked, c.Elapsed()); usable {
			t.Errorf("%+v is of use", r)
		}
	})
}

func TestClock_takesAnyYear(t *testing.T) {
	for _, year := range []int{1, 1970, 2262, 2263, 9999} {
		synctest.Test(t, func(t *testing.T) {
			wall := time.Now
			c := New(Config{Wall: func() time.Time { return wall() }, MaxSkew: 500 * time.Millisecond})
			time.Sleep(time.Hour)
			begin := time.Now()
			wall = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Since(begin)) }
			if due := c.Due(); due.After(begin) {
				t.Errorf("year %d: messages are due by %v", year, due)
			}
			time.Sleep(time.Second)
			if now := c.Now(); !now.Equal(time.Now()) {
				t.Errorf("year %d: now is %v", year, now)
			}
			r, _ := c.Measure("n2", time.Now(), c.Elapsed(), c.Elapsed())
			if v := c.Judge([]Reading{r, r}); v.Standing != Skewed || v.Right != 0 {
				t.Errorf("year %d: %+v", year, v)
			}
		})
	}
}
