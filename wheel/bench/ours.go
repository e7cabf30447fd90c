package main

import (
	"context"
	"time"

	"github.com/carillonmq/carillon/wheel"
	"github.com/carillonmq/carillon/wheel/timer"
)

const batch = 1024

// must ends the program: a contender that refuses a timer has no place in a table.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// wheelStepper is the pure structure.
type wheelStepper struct {
	wheel   *wheel.Wheel[uint64]
	handles []wheel.Handle
	fired   func(int)
	buf     []wheel.Expired[uint64]
}

func newWheel(n int, fired func(int)) contender {
	return &wheelStepper{wheel.New[uint64](0), make([]wheel.Handle, n), fired, make([]wheel.Expired[uint64], 0, batch)}
}

func (w *wheelStepper) add(i int, delay time.Duration) {
	h, err := w.wheel.Add(uint64(delay.Milliseconds()), uint64(i))
	must(err)
	w.handles[i] = h
}

func (w *wheelStepper) cancel(i int) { w.wheel.Cancel(w.handles[i]) }

func (w *wheelStepper) replace(order []int32, delays []time.Duration) {
	for k, i := range order {
		w.wheel.Cancel(w.handles[i])
		h, err := w.wheel.Add(uint64(delays[k].Milliseconds()), uint64(i))
		must(err)
		w.handles[i] = h
	}
}

func (w *wheelStepper) move(i int, delay time.Duration) {
	if h, ok := w.wheel.Move(w.handles[i], uint64(delay.Milliseconds())); ok {
		w.handles[i] = h
	}
}

func (w *wheelStepper) next() (uint64, bool) { return w.wheel.Next() }

func (w *wheelStepper) advance(now uint64) (int, bool) {
	due, more := w.wheel.Advance(now, w.buf)
	for _, e := range due {
		w.fired(int(e.Value))
	}
	return len(due), more
}

func (w *wheelStepper) fireAll(tidy bool) {
	for tidy && w.tidy(0) {
	}
	for {
		now, ok := w.wheel.Next()
		if !ok {
			return
		}
		for more := true; more; {
			_, more = w.advance(now)
		}
		if tidy {
			w.tidy(now)
		}
	}
}

// tidy does as much per call as DelayQueue.Pop.
func (w *wheelStepper) tidy(now uint64) bool { return w.wheel.Maintain(now, 16) }

func (w *wheelStepper) start() {}
func (w *wheelStepper) stop()  {}

// delayQueue is the DelayQueue with an owner who pops once all is set, and leaves the firing to
// workers.
type delayQueue struct {
	queue   *timer.DelayQueue[uint64]
	handles []wheel.Handle
	fired   func(int)
	due     chan []wheel.Expired[uint64] // batches from the owner to the workers
	spare   chan []wheel.Expired[uint64] // and back
	quit    chan struct{}
}

func newDelayQueue(n int, fired func(int)) contender {
	const batches = 8
	q := &delayQueue{
		queue: timer.NewDelayQueue[uint64](timer.QueueConfig{}), handles: make([]wheel.Handle, n), fired: fired,
		due: make(chan []wheel.Expired[uint64], batches), spare: make(chan []wheel.Expired[uint64], batches),
		quit: make(chan struct{}),
	}
	for range batches {
		q.spare <- make([]wheel.Expired[uint64], 0, batch)
	}
	return q
}

func (q *delayQueue) add(i int, delay time.Duration) {
	h, err := q.queue.Add(timer.CeilMilli(time.Now().Add(delay)), uint64(i))
	must(err)
	q.handles[i] = h
}

func (q *delayQueue) cancel(i int) { q.queue.Cancel(q.handles[i]) }

func (q *delayQueue) replace(order []int32, delays []time.Duration) { replaceAll(q, order, delays) }

func (q *delayQueue) move(i int, delay time.Duration) {
	if h, ok := q.queue.Move(q.handles[i], timer.CeilMilli(time.Now().Add(delay))); ok {
		q.handles[i] = h
	}
}

func (q *delayQueue) start() {
	go q.pop()
	for range 2 {
		go q.work()
	}
}

func (q *delayQueue) pop() {
	defer close(q.due)
	buf := <-q.spare
	for {
		due, more := q.queue.Pop(buf)
		if len(due) > 0 {
			q.due <- due
			buf = <-q.spare
		}
		if more {
			continue
		}
		select {
		case <-q.queue.C():
		case <-q.quit:
			return
		}
	}
}

func (q *delayQueue) work() {
	for due := range q.due {
		for _, e := range due {
			q.fired(int(e.Value))
		}
		q.spare <- due[:0]
	}
}

func (q *delayQueue) stop() { close(q.quit) }

// service is the runtime with keys, handles and workers.
type service struct {
	*timer.Service[int, struct{}]
}

func newService(n int, fired func(int)) contender {
	s, err := timer.New(timer.Config[int, struct{}]{
		Fire: func(e timer.Event[int, struct{}]) { fired(e.Key) },
	})
	must(err)
	return service{s}
}

func (s service) add(i int, delay time.Duration) {
	_, err := s.Set(i, struct{}{}, delay)
	must(err)
}

func (s service) cancel(i int)                                  { s.Remove(i) }
func (s service) move(i int, delay time.Duration)               { _ = s.Move(i, delay) } // it may have fired
func (s service) replace(order []int32, delays []time.Duration) { replaceAll(s, order, delays) }
func (s service) start()                                        {}
func (s service) stop()                                         { _, err := s.Stop(context.Background()); must(err) }
