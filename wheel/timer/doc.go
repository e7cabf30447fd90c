// Package timer gives the timing wheel of package wheel a clock. It holds from one to tens of
// millions of timers, from a millisecond to centuries ahead, each at the same cost. It wakes only
// when one is due, and fires none early.
//
// There are two layers. Take the upper one unless you know better.
//
// # Service: call a function when a key's time has come
//
//	s, err := timer.New(timer.Config[string, Order]{
//		Fire: func(e timer.Event[string, Order]) { cancel(e.Value) },
//	})
//	...
//	s.Set(order.ID, order, 30*time.Minute) // again: a new value, a new deadline
//	s.Move(order.ID, time.Hour)            // postpone, or bring forward
//	s.Remove(order.ID)                     // paid; says whether it came in time
//	s.Every("sweep", Order{}, time.Minute) // periodic, without drift
//	unfired, err := s.Stop(ctx)            // what had not fired, to be kept
//
// Each key has one timer at most. Set and Every also return it, as a [Timer] that can be stopped
// and asked for its [State].
//
// A timer is pending until a worker begins its callback; from then on it has fired. So exactly one
// wins when Remove, Timer.Stop, Drain or Service.Stop meet the firing: when they say that they
// stopped a timer, its callback does not begin.
//
//	 Set, Every, Move
//	    |      ^
//	    v      | periodic
//	+---------------+  a worker begins the callback   +-------+
//	|    pending    |-------------------------------->| fired |
//	+---------------+                                 +-------+
//	    |        |    executor full, with Drop        +---------+
//	    |        +----------------------------------->| dropped |
//	    |  Remove, Timer.Stop, Drain, Service.Stop    +---------+
//	    +-------------------------------------------->| stopped |
//	                                                  +---------+
//
// Callbacks run on at most Config.Workers goroutines, which exist only while there is work. A slow
// one does not delay the wheel, and delays other callbacks only when all workers are busy. Then
// Config.Queue timers that are due wait in line. Beyond that Config.WhenFull decides:
//
//   - [Wait], the default: they stay in the wheel and fire late.
//   - [Spawn]: each fires at once in a goroutine of its own, without bound; those in line wait.
//   - [Drop]: they are reported and do not fire.
//
// A panic in a callback is logged, and counted in [Stats]. Callbacks and the log's handler may use
// the service.
//
// Delays are measured by the monotonic clock: a step of the system's clock does not touch them.
//
// # DelayQueue: the core, for a goroutine that has other things to select on
//
//	q := timer.NewDelayQueue[Job](timer.QueueConfig{})
//	for {
//		select {
//		case job := <-jobs:
//			q.Add(timer.CeilMilli(job.At), job)
//		case <-q.C():
//		}
//		for more := true; more; {
//			due, more = q.Pop(buf)
//			...
//		}
//	}
//
// It has no goroutine and no lock, and allocates nothing per timer. Its deadlines are wall-clock
// milliseconds by a clock of your choice. When that clock is set forward, the queue sees it within
// a second. When it is set back, what is pending waits until the clock is there again.
//
// # Time
//
// Deadlines are rounded up to the millisecond and the clock is read rounded down. So a timer is up
// to a millisecond late by construction and never early. Everything works inside a bubble of
// testing/synctest: a century passes in no time, with a DelayQueue if MaxSleep is long.
// A bubble's clock begins in 2000 and ends in 2262, with the range of 64-bit nanoseconds.
//
// # Errors
//
// Bad input is refused with an error that names the field, the value and what would do:
// [ErrConfig], [ErrDelay], [ErrDeadline], [ErrKey], [ErrFull], [ErrNotPending], [ErrStopped]. Zero
// values return [ErrNotMade]. Nothing here panics but a key that no map takes.
package timer
