package wheel_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillonmq/carillon/wheel"
)

func Example() {
	w := wheel.New[string](0)
	w.Add(300, "third")
	w.Add(100, "first")
	w.Add(100, "second")

	for next, ok := w.Next(); ok; next, ok = w.Next() {
		// A program sleeps until next here.
		due, _ := w.Advance(next, nil)
		for _, t := range due {
			fmt.Println(t.When, t.Value)
		}
	}
	// Output:
	// 100 first
	// 100 second
	// 300 third
}

func ExampleWheel_Add() {
	w := wheel.New[string](1000)
	_, err := w.Add(1<<48, "too far")
	fmt.Println(errors.Is(err, wheel.ErrTooFar))

	w.Add(40, "past due")
	due, _ := w.Advance(1000, nil)
	fmt.Println(due)
	// Output:
	// true
	// [{40 past due}]
}

// Deadlines are rounded up to ticks and the clock is rounded down, so that no timer
// is early by a fraction of a tick.
func ExampleWheel_Add_milliseconds() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	deadline := start.Add(1500 * time.Microsecond)

	w := wheel.New[string](uint64(start.UnixMilli()))
	w.Add(uint64(deadline.Add(time.Millisecond-1).UnixMilli()), "not before 1.5 ms")

	for _, clock := range []time.Duration{1500 * time.Microsecond, 1999 * time.Microsecond, 2 * time.Millisecond} {
		due, _ := w.Advance(uint64(start.Add(clock).UnixMilli()), nil)
		fmt.Println(clock, len(due))
	}
	// Output:
	// 1.5ms 0
	// 1.999ms 0
	// 2ms 1
}

func ExampleWheel_Cancel() {
	w := wheel.New[string](0)
	h, _ := w.Add(10, "reply timeout")

	t, _ := w.Get(h) // before: Cancel does not return it
	fmt.Println(w.Cancel(h), t.Value)
	fmt.Println(w.Cancel(h), w.Len())
	// Output:
	// true reply timeout
	// false 0
}

// A connection is closed after 30 ticks without traffic: each packet
// postpones the one timer, which costs next to nothing.
func ExampleWheel_Move() {
	w := wheel.New[string](0)
	h, _ := w.Add(30, "idle connection")
	for _, packet := range []uint64{10, 20, 35} {
		w.Advance(packet, nil)
		h, _ = w.Move(h, packet+30)
	}
	due, _ := w.Advance(64, nil)
	fmt.Println(due)
	due, _ = w.Advance(65, nil)
	fmt.Println(due)
	// Output:
	// []
	// [{65 idle connection}]
}

func ExampleWheel_Get() {
	w := wheel.New[string](0)
	h, _ := w.Add(90, "report")
	h, _ = w.Move(h, 120)
	t, ok := w.Get(h)
	fmt.Println(t.When, t.Value, ok)

	w.Advance(120, nil)
	_, ok = w.Get(h)
	fmt.Println(ok)
	// Output:
	// 120 report true
	// false
}

// Sleeping until Next costs nothing while nothing is due, however far the
// next timer is.
func ExampleWheel_Next() {
	const year = 365 * 24 * 3600 * 1000
	w := wheel.New[string](0)
	w.Add(10*year, "ten years on")
	next, ok := w.Next()
	fmt.Println(next/year, ok)

	w.Advance(next, nil)
	_, ok = w.Next()
	fmt.Println(ok)
	// Output:
	// 10 true
	// false
}

// The caller's buffer bounds a batch; more tells to come back.
func ExampleWheel_Advance() {
	w := wheel.New[int](0)
	for i := range 5 {
		w.Add(7, i)
	}
	buf := make([]wheel.Expired[int], 0, 2)
	for more := true; more; {
		var due []wheel.Expired[int]
		due, more = w.Advance(7, buf)
		for _, t := range due {
			fmt.Print(t.Value, " ")
		}
		fmt.Println(more)
	}
	// Output:
	// 0 1 true
	// 2 3 true
	// 4 false
}

// The clock steps back by 400 ticks: a new delay of 10 takes 10 all the same,
// and what was pending waits for its own tick.
func ExampleWheel_Advance_backwardClock() {
	w := wheel.New[string](0)
	w.Add(600, "old")
	w.Advance(500, nil)

	w.Add(110, "new")
	for _, now := range []uint64{100, 109, 110, 599, 600} {
		due, _ := w.Advance(now, nil)
		fmt.Println(now, due)
	}
	// Output:
	// 100 []
	// 109 []
	// 110 [{110 new}]
	// 599 []
	// 600 [{600 old}]
}

// A hundred thousand timers of one second, six hours away, are sorted out in idle time,
// so that each tick finds its own ready.
func ExampleWheel_Maintain() {
	const at = 6 * 3600 * 1000
	w := wheel.New[int](0)
	for i := range 100_000 {
		w.Add(uint64(at+i%1000), i)
	}
	for w.Maintain(1000, 50) { // a few chunks whenever there is time
	}
	due, more := w.Advance(at, make([]wheel.Expired[int], 0, 500))
	fmt.Println(len(due), more)
	// Output:
	// 100 false
}

// On shutdown, what has not fired is handed back.
func ExampleWheel_Drain() {
	w := wheel.New[string](0)
	w.Add(1000, "pending")
	w.Add(10, "fired")
	w.Advance(10, nil)
	for t := range w.Drain() {
		fmt.Println(t.When, t.Value)
	}
	fmt.Println(w.Len())
	// Output:
	// 1000 pending
	// 0
}

// A wheel is rebuilt at another cursor by draining it into a new one.
func ExampleNew() {
	old := wheel.New[string](9_000)
	old.Add(9_500, "kept")

	w := wheel.New[string](5_000) // the clock was four seconds fast
	for t := range old.Drain() {
		w.Add(t.When, t.Value)
	}
	next, _ := w.Next()
	fmt.Println(next, w.Len())
	// Output:
	// 9500 1
}
