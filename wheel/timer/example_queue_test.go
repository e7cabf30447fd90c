package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonmq/carillon/wheel"
	"github.com/carillonmq/carillon/wheel/timer"
)

// One goroutine owns the queue: it takes arrivals from a channel and hands on what is due.
func ExampleDelayQueue() {
	type message struct {
		text  string
		after time.Duration
	}
	arrivals := make(chan message)
	delivered := make(chan string)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	go func() {
		q := timer.NewDelayQueue[string](timer.QueueConfig{})
		buf := make([]wheel.Expired[string], 0, 64)
		for {
			select {
			case m := <-arrivals:
				if _, err := q.Add(timer.CeilMilli(time.Now().Add(m.after)), m.text); err != nil {
					fmt.Println(err)
				}
			case <-q.C():
			case <-ctx.Done():
				return
			}
			for more := true; more; {
				var due []wheel.Expired[string]
				due, more = q.Pop(buf)
				for _, e := range due {
					delivered <- e.Value
				}
			}
		}
	}()

	arrivals <- message{"second", 60 * time.Millisecond}
	arrivals <- message{"first", 20 * time.Millisecond}
	fmt.Println(<-delivered)
	fmt.Println(<-delivered)
	// Output:
	// first
	// second
}

// The clock is whatever the queue is given: here one that stands still.
func ExampleDelayQueue_Pop() {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	now := noon
	q := timer.NewDelayQueue[string](timer.QueueConfig{Now: func() time.Time { return now }})
	q.Add(noon.Add(time.Hour).UnixMilli(), "at one")
	q.Add(noon.Add(time.Minute).UnixMilli(), "a minute past noon")
	q.Add(noon.Add(-time.Minute).UnixMilli(), "past due")

	pop := func() {
		due, _ := q.Pop(nil)
		for _, e := range due {
			fmt.Println(now.Format("15:04"), "-", e.Value, "- for", time.UnixMilli(int64(e.When)).UTC().Format("15:04"))
		}
	}
	pop()
	now = noon.Add(2 * time.Hour)
	pop()
	// Output:
	// 12:00 - past due - for 11:59
	// 14:00 - a minute past noon - for 12:01
	// 14:00 - at one - for 13:00
}

// A handle moves and cancels one timer; a stale one is refused.
func ExampleDelayQueue_Move() {
	q := timer.NewDelayQueue[string](timer.QueueConfig{})
	tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
	h, err := q.Add(tomorrow, "meeting")
	if err != nil {
		fmt.Println(err)
		return
	}
	h, ok := q.Move(h, tomorrow-time.Hour.Milliseconds())
	fmt.Println("moved:", ok)
	t, _ := q.Get(h)
	fmt.Println("cancelled:", q.Cancel(h), t.Value)
	fmt.Println("cancelled again:", q.Cancel(h))
	// Output:
	// moved: true
	// cancelled: true meeting
	// cancelled again: false
}

// When the clock is set back, nothing comes out before it is there again.
func ExampleQueueConfig_onStep() {
	start := time.Now()
	var offset time.Duration
	q := timer.NewDelayQueue[string](timer.QueueConfig{
		Now:    func() time.Time { return start.Add(offset) },
		OnStep: func(step time.Duration) { fmt.Println("the clock was set by", step.Round(time.Hour)) },
	})
	q.Add(start.Add(time.Hour).UnixMilli(), "in an hour")

	offset = -2 * time.Hour
	due, _ := q.Pop(nil)
	fmt.Println(len(due), "due")
	offset = 1 * time.Hour
	due, _ = q.Pop(nil)
	fmt.Println(len(due), "due")
	// Output:
	// the clock was set by -2h0m0s
	// 0 due
	// the clock was set by 3h0m0s
	// 1 due
}
