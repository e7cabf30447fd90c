package timer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

// Cancel an order that is not paid in time.
func Example() {
	cancelled := make(chan string)
	orders, err := timer.New(timer.Config[string, int]{
		Fire: func(e timer.Event[string, int]) {
			cancelled <- fmt.Sprintf("order %s of %d euros cancelled", e.Key, e.Value)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Stop(context.Background())

	orders.Set("A-17", 40, 20*time.Millisecond)
	orders.Set("A-18", 25, 20*time.Millisecond)
	if _, stopped := orders.Remove("A-17"); stopped {
		fmt.Println("A-17 was paid in time")
	}
	fmt.Println(<-cancelled)
	// Output:
	// A-17 was paid in time
	// order A-18 of 25 euros cancelled
}

// Setting a key that is pending replaces its value and moves it.
func ExampleService_Set() {
	fired := make(chan timer.Event[string, string])
	s, err := timer.New(timer.Config[string, string]{
		Fire: func(e timer.Event[string, string]) { fired <- e },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop(context.Background())

	s.Set("reminder", "call tomorrow", 24*time.Hour)
	s.Set("reminder", "call now", 0)
	e := <-fired
	fmt.Println(e.Key+":", e.Value, "- pending:", s.Len())
	// Output: reminder: call now - pending: 0
}

// A callback may set its own key again: a retry with growing delays.
func ExampleService_Set_retry() {
	done := make(chan struct{})
	var retries *timer.Service[string, int]
	retries, err := timer.New(timer.Config[string, int]{
		Fire: func(e timer.Event[string, int]) {
			attempt := e.Value
			fmt.Println("attempt", attempt)
			if attempt == 3 {
				close(done)
				return
			}
			retries.Set(e.Key, attempt+1, time.Millisecond<<attempt)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer retries.Stop(context.Background())
	retries.Set("upload", 1, 0)
	<-done
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

// Postpone a session's end whenever it is used.
func ExampleService_Move() {
	s, err := timer.New(timer.Config[string, string]{
		Fire: func(timer.Event[string, string]) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop(context.Background())

	s.Set("session 1", "", 30*time.Minute)
	fmt.Println(s.Move("session 1", 30*time.Minute))
	fmt.Println(errors.Is(s.Move("session 2", 30*time.Minute), timer.ErrNotPending))
	// Output:
	// <nil>
	// true
}

// A periodic timer keeps to its grid until it is stopped.
func ExampleService_Every() {
	beats := make(chan time.Time, 2)
	s, err := timer.New(timer.Config[string, string]{
		Fire: func(e timer.Event[string, string]) {
			select {
			case beats <- e.Due:
			default: // nobody listens any more: Stop would wait for this callback
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop(context.Background())

	heartbeat, err := s.Every("heartbeat", "", 20*time.Millisecond)
	if err != nil {
		fmt.Println(err)
		return
	}
	first, second := <-beats, <-beats
	fmt.Println(second.Sub(first)%(20*time.Millisecond) == 0)
	fmt.Println(heartbeat.Stop(), heartbeat.State())
	// Output:
	// true
	// true stopped
}

// Stop returns what did not fire, so that nothing is lost over a restart.
func ExampleService_Stop() {
	s, err := timer.New(timer.Config[string, string]{
		Fire: func(timer.Event[string, string]) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Set("report", "monthly", 30*24*time.Hour)
	s.Set("invoice", "A-17", time.Hour)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // for running callbacks
	defer cancel()
	unfired, err := s.Stop(ctx)
	for _, e := range unfired {
		fmt.Println(e.Key, e.Value)
	}
	_, late := s.Set("report", "yearly", time.Hour)
	fmt.Println(err, errors.Is(late, timer.ErrStopped))
	// Output:
	// invoice A-17
	// report monthly
	// <nil> true
}

// Drain empties the service, which goes on.
func ExampleService_Drain() {
	s, err := timer.New(timer.Config[int, string]{
		Fire: func(timer.Event[int, string]) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop(context.Background())

	s.Set(1, "in an hour", time.Hour)
	s.Set(2, "in a minute", time.Minute)
	events, err := s.Drain()
	for _, e := range events {
		fmt.Println(e.Key, e.Value)
	}
	fmt.Println(s.Len(), "pending", err)
	// Output:
	// 2 in a minute
	// 1 in an hour
	// 0 pending <nil>
}

// MaxPending bounds the memory; a full service says so.
func ExampleConfig_maxPending() {
	s, err := timer.New(timer.Config[string, string]{
		Fire:       func(timer.Event[string, string]) {},
		MaxPending: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop(context.Background())

	s.Set("a", "", time.Hour)
	_, err = s.Set("b", "", time.Hour)
	fmt.Println(err)
	// Output: timer: too many timers pending: 1, the limit
}

// A timer remembers what became of it, whatever its key is used for afterwards.
func ExampleTimer_State() {
	fired := make(chan string)
	s, err := timer.New(timer.Config[string, string]{
		Fire: func(e timer.Event[string, string]) { fired <- e.Value },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop(context.Background())

	first, _ := s.Set("key", "first", 0)
	<-fired
	second, _ := s.Set("key", "second", time.Hour)
	fmt.Println(first.State(), second.State())
	fmt.Println(first.Stop(), second.Stop())
	fmt.Println(first.State(), second.State())
	// Output:
	// fired pending
	// false true
	// fired stopped
}
