package main

import "time"

// A contender holds timers, which the benchmark numbers from 0. Its timers call the fired function
// that it was made with.
type contender interface {
	add(i int, delay time.Duration)
	cancel(i int)
	move(i int, delay time.Duration)
	replace(order []int32, delays []time.Duration) // cancels each and adds it again
	start()                                        // fire what was added, and is added from now on; those that always do ignore it
	stop()
}

// replaceAll is replace for contenders whose operations are so long that two calls through an
// interface do not count beside them.
func replaceAll(c contender, order []int32, delays []time.Duration) {
	for k, i := range order {
		c.cancel(int(i))
		c.add(int(i), delays[k])
	}
}

// A stepper is a contender without a clock of its own, which is then the benchmark's: milliseconds
// since it was made. It never starts.
type stepper interface {
	contender
	fireAll(tidy bool) // moves the clock from deadline to deadline, as a runtime does that sleeps in between
	// One step of that each:
	next() (now uint64, ok bool)
	advance(now uint64) (fired int, more bool) // fires 1,024 timers at most
	tidy(now uint64) (more bool)               // splits crowds ahead, while idle
}

// An entrant is how a contender enters the tables.
type entrant struct {
	name  string
	make  func(n int, fired func(i int)) contender // for n timers
	most  int                                      // the largest n that ends within reason, 0: any
	steps bool                                     // makes a stepper
	tidy  bool                                     // whose tidy does something
	spawn bool                                     // starts a goroutine for each firing
}

// structures have their clock moved by hand; runtimes fire in real time.
func structures() []entrant {
	return []entrant{
		{name: "wheel", make: newWheel, steps: true, tidy: true},
		{name: "container/heap", make: newHeap, steps: true},
	}
}

func runtimes() []entrant {
	return []entrant{
		{name: "wheel/timer DelayQueue", make: newDelayQueue},
		{name: "wheel/timer Service", make: newService},
		{name: "heap DelayQueue", make: newHeapQueue},
		{name: "time.AfterFunc", make: newAfterFunc, spawn: true},
		{name: "RussellLuo", make: newRussellLuo, spawn: true},
		{name: "antlabs", make: newAntlabs, spawn: true},
		{name: "go-zero", make: newGoZero, most: 1_000_000},
	}
}

// within returns the entrants that take n timers.
func within(n int, es []entrant) []entrant {
	var in []entrant
	for _, e := range es {
		if e.most == 0 || n <= e.most {
			in = append(in, e)
		}
	}
	return in
}
