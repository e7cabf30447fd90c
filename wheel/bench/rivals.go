package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"
	antlabs "github.com/antlabs/timer"
	"github.com/zeromicro/go-zero/core/collection"
)

// afterFunc is Go's own: one runtime timer and one goroutine per firing.
type afterFunc struct {
	timers []*time.Timer
	fired  func(int)
}

func newAfterFunc(n int, fired func(int)) contender {
	return &afterFunc{make([]*time.Timer, n), fired}
}

func (a *afterFunc) add(i int, delay time.Duration) {
	a.timers[i] = time.AfterFunc(delay, func() { a.fired(i) })
}

func (a *afterFunc) cancel(i int)                                  { a.timers[i].Stop() }
func (a *afterFunc) move(i int, delay time.Duration)               { a.timers[i].Reset(delay) }
func (a *afterFunc) replace(order []int32, delays []time.Duration) { replaceAll(a, order, delays) }
func (a *afterFunc) start()                                        {}

func (a *afterFunc) stop() {
	for _, t := range a.timers {
		if t != nil {
			t.Stop()
		}
	}
}

// russellLuo is Kafka's wheel in Go, with Kafka's 1 ms x 20. It has no move: stop and add.
type russellLuo struct {
	wheel  *timingwheel.TimingWheel
	timers []*timingwheel.Timer
	fired  func(int)
}

func newRussellLuo(n int, fired func(int)) contender {
	w := timingwheel.NewTimingWheel(time.Millisecond, 20)
	w.Start()
	return &russellLuo{w, make([]*timingwheel.Timer, n), fired}
}

func (r *russellLuo) add(i int, delay time.Duration) {
	r.timers[i] = r.wheel.AfterFunc(delay, func() { r.fired(i) })
}

func (r *russellLuo) cancel(i int) { r.timers[i].Stop() }

func (r *russellLuo) replace(order []int32, delays []time.Duration) { replaceAll(r, order, delays) }

func (r *russellLuo) move(i int, delay time.Duration) {
	if r.timers[i].Stop() {
		r.add(i, delay)
	}
}

func (r *russellLuo) start() {}
func (r *russellLuo) stop()  { r.wheel.Stop() }

// antlabsWheel has a fixed tick of 10 ms. Its Reset deadlocks when the old and the new deadline
// share a slot (v0.1.4 locks the slot's list twice), so a move is stop and add here.
type antlabsWheel struct {
	wheel  antlabs.Timer
	timers []antlabs.TimeNoder
	fired  func(int)
}

func newAntlabs(n int, fired func(int)) contender {
	w := antlabs.NewTimer(antlabs.WithTimeWheel())
	go w.Run()
	return &antlabsWheel{w, make([]antlabs.TimeNoder, n), fired}
}

func (a *antlabsWheel) add(i int, delay time.Duration) {
	a.timers[i] = a.wheel.AfterFunc(delay, func() { a.fired(i) })
}

func (a *antlabsWheel) cancel(i int) { a.timers[i].Stop() }

func (a *antlabsWheel) replace(order []int32, delays []time.Duration) { replaceAll(a, order, delays) }

func (a *antlabsWheel) move(i int, delay time.Duration) {
	if a.timers[i].Stop() {
		a.add(i, delay)
	}
}

func (a *antlabsWheel) start() {}
func (a *antlabsWheel) stop()  { a.wheel.Stop() }

// goZero has 65,536 slots of 1 ms: a turn in 65 s.
type goZero struct{ wheel *collection.TimingWheel }

func newGoZero(n int, fired func(int)) contender {
	w, err := collection.NewTimingWheel(time.Millisecond, 1<<16, func(key, _ any) { fired(key.(int)) })
	must(err)
	return goZero{w}
}

func (g goZero) add(i int, delay time.Duration)                { must(g.wheel.SetTimer(i, nil, delay)) }
func (g goZero) cancel(i int)                                  { must(g.wheel.RemoveTimer(i)) }
func (g goZero) move(i int, delay time.Duration)               { must(g.wheel.MoveTimer(i, delay)) }
func (g goZero) replace(order []int32, delays []time.Duration) { replaceAll(g, order, delays) }
func (g goZero) start()                                        {}
func (g goZero) stop()                                         { g.wheel.Stop() }
