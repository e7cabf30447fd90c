package timer_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel"
	"github.com/carillonmq/carillon/wheel/timer"
)

// setClock is a wall clock that the test can set.
type setClock struct{ offset atomic.Int64 }

func (c *setClock) now() time.Time       { return time.Now().Add(time.Duration(c.offset.Load())).Round(0) }
func (c *setClock) set(by time.Duration) { c.offset.Add(int64(by)) }

// in returns the deadline that lies d ahead of the clock's now.
func (c *setClock) in(d time.Duration) int64 { return timer.CeilMilli(c.now().Add(d)) }

func popAll[T any](q *timer.DelayQueue[T]) []T {
	var out []T
	for {
		due, more := q.Pop(nil)
		for _, e := range due {
			out = append(out, e.Value)
		}
		if !more {
			return out
		}
	}
}

func mustAdd[T any](t *testing.T, q *timer.DelayQueue[T], due int64, v T) wheel.Handle {
	t.Helper()
	h, err := q.Add(due, v)
	if err != nil {
		t.Fatalf("Add(%d): %v", due, err)
	}
	return h
}

// sleepUntilPop is the owner's loop, until something comes out.
func sleepUntilPop[T any](q *timer.DelayQueue[T]) []T {
	for {
		if out := popAll(q); len(out) > 0 {
			return out
		}
		<-q.C()
	}
}

func TestDelayQueue_wakesAtTheDeadlineRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q := timer.NewDelayQueue[string](timer.QueueConfig{})
		mustAdd(t, q, timer.CeilMilli(start.Add(90*time.Minute+time.Nanosecond)), "a")
		if got := sleepUntilPop(q); !slices.Equal(got, []string{"a"}) {
			t.Errorf("came out: %v, want a", got)
		}
		if got, want := time.Since(start), 90*time.Minute+time.Millisecond; got != want {
			t.Errorf("came out after %v, want %v", got, want)
		}
	})
}

func TestDelayQueue_anEarlierAddRearms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		start := time.Now()
		q := timer.NewDelayQueue[string](timer.QueueConfig{MaxSleep: time.Hour})
		mustAdd(t, q, c.in(time.Minute), "late")
		arrivals := make(chan string)
		go func() {
			time.Sleep(time.Second)
			arrivals <- "soon"
		}()
		var out []string
		for len(out) == 0 {
			select {
			case v := <-arrivals:
				mustAdd(t, q, c.in(time.Second), v)
			case <-q.C():
				out = popAll(q)
			}
		}
		if !slices.Equal(out, []string{"soon"}) || time.Since(start) != 2*time.Second {
			t.Errorf("first came %v after %v, want soon after 2s", out, time.Since(start))
		}
	})
}

func TestDelayQueue_emptyNeverWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := timer.NewDelayQueue[int](timer.QueueConfig{})
		h := mustAdd(t, q, timer.CeilMilli(time.Now().Add(time.Second)), 1)
		q.C()
		if !q.Cancel(h) {
			t.Fatal("Cancel of a pending timer = false")
		}
		select {
		case <-q.C():
			t.Error("the empty queue woke")
		case <-time.After(24 * time.Hour):
		}
	})
}

func TestDelayQueue_getTellsWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[string](timer.QueueConfig{Now: c.now})
		a, b := mustAdd(t, q, c.in(time.Second), "a"), mustAdd(t, q, c.in(time.Second), "b")
		a, _ = q.Move(a, c.in(time.Minute))
		if got, ok := q.Get(a); !ok || got != (wheel.Expired[string]{When: uint64(c.in(time.Minute)), Value: "a"}) {
			t.Errorf("Get = %+v, %v, want a in a minute", got, ok)
		}
		time.Sleep(time.Second)
		popAll(q)
		if got, ok := q.Get(b); ok {
			t.Errorf("Get of a timer that has come out = %+v", got)
		}
		q.Cancel(a)
		if got, ok := q.Get(a); ok {
			t.Errorf("Get of a cancelled timer = %+v", got)
		}
	})
}

func TestDelayQueue_pastDueComesOutByItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[string](timer.QueueConfig{Now: c.now})
		time.Sleep(time.Second)
		popAll(q) // the wheel's cursor is now at the present
		mustAdd(t, q, c.in(0), "present")
		mustAdd(t, q, c.in(-100*time.Millisecond), "second")
		mustAdd(t, q, c.in(-500*time.Millisecond), "first")
		mustAdd(t, q, c.in(-100*time.Millisecond), "third")
		due, more := q.Pop(make([]wheel.Expired[string], 0, 8))
		var got []string
		for _, e := range due {
			got = append(got, e.Value)
		}
		if want := []string{"first", "second", "third", "present"}; !slices.Equal(got, want) || more {
			t.Errorf("popped %v, more %v, want %v, false", got, more, want)
		}
		if got, want := int64(due[0].When), c.in(-500*time.Millisecond); got != want {
			t.Errorf("When of the first = %d, want the deadline asked for, %d", got, want)
		}
	})
}

func TestDelayQueue_popFillsTheRoomAndSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[int](timer.QueueConfig{})
		time.Sleep(time.Second)
		popAll(q)
		var want []int
		for i := range 10 {
			mustAdd(t, q, c.in(time.Duration(i-5)*time.Millisecond), i) // half of them past due
			want = append(want, i)
		}
		time.Sleep(time.Second)
		var got []int
		for more := true; more; {
			var due []wheel.Expired[int]
			due, more = q.Pop(make([]wheel.Expired[int], 0, 3))
			if len(due) > 3 {
				t.Fatalf("Pop returned %d, room was 3", len(due))
			}
			for _, e := range due {
				got = append(got, e.Value)
			}
		}
		if !slices.Equal(got, want) || q.Len() != 0 {
			t.Errorf("popped %v, %d left, want %v and none left", got, q.Len(), want)
		}
	})
}

func TestDelayQueue_splitsACrowdAheadInPiecesAndThenSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[int](timer.QueueConfig{})
		for i := range 50_000 {
			mustAdd(t, q, c.in(time.Hour+time.Duration(i%1000)*time.Millisecond), i)
		}
		start, pieces := time.Now(), 0
		for popAll(q); time.Since(start) == 0; pieces++ {
			<-q.C()
			popAll(q)
		}
		if got := time.Since(start); pieces < 10 || got != time.Second {
			t.Errorf("%d pieces, then slept %v, want 10 at least and the longest sleep, 1s", pieces, got)
		}
	})
}

func TestDelayQueue_startsInThePastWithABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[int](timer.QueueConfig{Start: c.in(-time.Hour)})
		for i, ago := range []time.Duration{10, 50, 30} {
			mustAdd(t, q, c.in(-ago*time.Minute), i)
		}
		if got, want := popAll(q), []int{1, 2, 0}; !slices.Equal(got, want) {
			t.Errorf("popped %v, want %v", got, want)
		}
	})
}

func TestDelayQueue_movesBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[string](timer.QueueConfig{})
		time.Sleep(time.Second)
		popAll(q)
		a := mustAdd(t, q, c.in(time.Minute), "a")
		b := mustAdd(t, q, c.in(-time.Millisecond), "b")
		pastA, ok := q.Move(a, c.in(-2*time.Millisecond)) // out of the wheel
		if !ok {
			t.Fatal("Move to the past refused")
		}
		if _, ok := q.Move(b, c.in(time.Hour)); !ok { // into the wheel
			t.Fatal("Move to the future refused")
		}
		if q.Cancel(b) {
			t.Error("Cancel took a handle that Move had made stale")
		}
		if got := popAll(q); !slices.Equal(got, []string{"a"}) {
			t.Errorf("popped %v, want a", got)
		}
		if _, ok := q.Move(pastA, c.in(time.Hour)); ok {
			t.Error("Move took the handle of a timer that came out")
		}
		time.Sleep(time.Hour)
		if got := popAll(q); !slices.Equal(got, []string{"b"}) {
			t.Errorf("popped %v, want b", got)
		}
	})
}

func TestDelayQueue_drainYieldsAllAndRetiresTheHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		q := timer.NewDelayQueue[int](timer.QueueConfig{})
		time.Sleep(time.Second)
		popAll(q)
		old := mustAdd(t, q, c.in(time.Second), 1)
		mustAdd(t, q, c.in(-time.Second), 2)
		var got []int
		for e := range q.Drain() {
			got = append(got, e.Value)
		}
		slices.Sort(got)
		if !slices.Equal(got, []int{1, 2}) || q.Len() != 0 {
			t.Errorf("drained %v, %d left, want [1 2] and none", got, q.Len())
		}
		mustAdd(t, q, c.in(time.Second), 3)
		if q.Cancel(old) {
			t.Error("a handle from before Drain cancelled a timer added after it")
		}
	})
}

func TestDelayQueue_allocatesNothingInSteadyState(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	q := timer.NewDelayQueue[uint64](timer.QueueConfig{Now: func() time.Time { return now }})
	buf := make([]wheel.Expired[uint64], 0, 64)
	next := uint64(0)
	step := func() {
		now = now.Add(time.Millisecond)
		for more := true; more; {
			var due []wheel.Expired[uint64]
			due, more = q.Pop(buf)
			for range due {
				next = next*6364136223846793005 + 1442695040888963407
				if _, err := q.Add(now.UnixMilli()+int64(next>>52), next); err != nil {
					t.Fatal(err)
				}
			}
		}
		q.C()
	}
	for range 10_000 {
		mustAdd(t, q, now.UnixMilli(), 0)
	}
	for range 10_000 {
		step()
	}
	if got := testing.AllocsPerRun(1000, step); got != 0 || q.Len() != 10_000 {
		t.Errorf("%v allocations per step with %d timers, want 0 with 10000", got, q.Len())
	}
}

func TestDelayQueue_refusesBadInput(t *testing.T) {
	q := timer.NewDelayQueue[int](timer.QueueConfig{})
	for _, due := range []int64{-1, wheel.MaxTick + 1, 1<<63 - 1} {
		if _, err := q.Add(due, 1); !errors.Is(err, timer.ErrDeadline) {
			t.Errorf("Add(%d) = %v, want ErrDeadline", due, err)
		}
	}
	h := mustAdd(t, q, wheel.MaxTick, 1)
	if _, ok := q.Move(h, -1); ok || q.Len() != 1 {
		t.Errorf("Move(-1) = %v with %d left, want refused and 1", ok, q.Len())
	}
	if q.Cancel(0) {
		t.Error("Cancel took the zero handle")
	}

	var zero timer.DelayQueue[int]
	if _, err := zero.Add(1, 1); !errors.Is(err, timer.ErrNotMade) {
		t.Errorf("Add to a zero queue = %v, want ErrNotMade", err)
	}
	if _, ok := zero.Next(); ok || zero.Len() != 0 || zero.C() != nil || popAll(&zero) != nil {
		t.Error("a zero queue is not empty")
	}
	if _, ok := zero.Get(0); ok || zero.Cancel(0) {
		t.Error("a zero queue has a timer")
	}
	for range zero.Drain() {
		t.Error("a zero queue drained something")
	}
}

// What Pop had no room for of its last millisecond is taken out by itself.
func TestDelayQueue_PopThroughTakesTheRestOfATick(t *testing.T) {
	now := int64(1_000)
	q := timer.NewDelayQueue[int](timer.QueueConfig{Start: now, Now: func() time.Time { return time.UnixMilli(now) }})
	for i := range 8 {
		if _, err := q.Add(1_001+int64(i/4), i); err != nil {
			t.Fatal(err)
		}
	}
	values := func(due []wheel.Expired[int]) (values []int) {
		for _, e := range due {
			values = append(values, e.Value)
		}
		return values
	}
	if due, more := q.PopThrough(1_002, nil); len(due) != 0 || more {
		t.Errorf("%v were taken out before they were due, more: %t", values(due), more)
	}
	now = 1_005
	due, more := q.Pop(make([]wheel.Expired[int], 0, 2))
	if !slices.Equal(values(due), []int{0, 1}) || !more {
		t.Errorf("Pop took out %v, more: %t", values(due), more)
	}
	if due, more = q.PopThrough(1_001, nil); !slices.Equal(values(due), []int{2, 3}) || more {
		t.Errorf("PopThrough took out %v, more: %t", values(due), more)
	}
	if due, more = q.Pop(nil); !slices.Equal(values(due), []int{4, 5, 6, 7}) || more {
		t.Errorf("Pop took out %v, more: %t", values(due), more)
	}
}
