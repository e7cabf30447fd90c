package main

import (
	"fmt"
	"runtime"
	"time"
)

// costs are what the operations of one contender took: CPU nanoseconds each, unless said.
type costs struct {
	add, replace, move, cancel float64 // replace: cancel one, add one
	fire                       float64 // structures only, from deadline to deadline
	ticked                     float64 // the same, a second at a time
	tidyFire                   float64 // from deadline to deadline with crowds split ahead
	longest                    float64 // CPU milliseconds of the longest advance, or split, of the latter
	bytes, allocs              float64 // per timer
}

// operations prints a table for each size and workload.
func operations(sizes []int, rounds int) {
	for _, n := range sizes {
		for _, w := range workloads() {
			fmt.Printf("\n### %s timers, %s\n", count(n), w.name)
			operationsTable(w.plan(n), within(n, append(structures(), runtimes()...)), rounds)
		}
	}
}

// operationsTable goes round the contenders several times, so that a bad minute of the machine
// does not hit one alone, and keeps the lowest cost of each.
func operationsTable(p plan, entrants []entrant, rounds int) {
	all := make([]costs, len(entrants))
	var heap, after costs
	for round := range rounds {
		for i, e := range entrants {
			c := once(e, p)
			if round > 0 {
				c = c.lowest(all[i])
			}
			all[i] = c
		}
	}
	for i, e := range entrants {
		switch e.name {
		case "container/heap":
			heap = all[i]
		case "time.AfterFunc":
			after = all[i]
		}
	}
	header("ns of CPU per operation", "add", "cancel + add", "move", "cancel", "fire", "fire, by the second", "fire, splitting ahead", "longest pause then, ms",
		"bytes per timer", "allocs per add", "cancel + add: times less than heap", "than AfterFunc", "fire: times less than heap", "by the second")
	for i, e := range entrants {
		c := all[i]
		fire, ticked, ahead, longest, ratio, tickedRatio := "", "", "", "", "", ""
		if c.fire > 0 {
			fire, ratio = number(c.fire), number(heap.fire/c.fire)
			ticked, tickedRatio = number(c.ticked), number(heap.ticked/c.ticked)
		}
		if c.tidyFire > 0 {
			ahead, longest = number(c.tidyFire), number(c.longest)
		}
		row(e.name, number(c.add), number(c.replace), number(c.move), number(c.cancel), fire, ticked, ahead, longest,
			number(c.bytes), number(c.allocs), number(heap.replace/c.replace), number(after.replace/c.replace), ratio, tickedRatio)
	}
}

func (c costs) lowest(d costs) costs {
	return costs{
		add:      min(c.add, d.add),
		replace:  min(c.replace, d.replace),
		move:     min(c.move, d.move),
		cancel:   min(c.cancel, d.cancel),
		fire:     min(c.fire, d.fire),
		ticked:   min(c.ticked, d.ticked),
		tidyFire: min(c.tidyFire, d.tidyFire),
		longest:  min(c.longest, d.longest),
		bytes:    min(c.bytes, d.bytes),
		allocs:   min(c.allocs, d.allocs),
	}
}

// once takes one contender through a plan: fill, replace all, replace, move a tenth, cancel; then
// afresh, for each way to fire: fill, cancel, fire. The new delays are read in order, so that the
// cache misses are the contender's own and those of the caller's handles.
func once(e entrant, p plan) costs {
	defer cleanUp()
	c := changes(e, p)
	if !e.steps {
		return c
	}
	left := len(p.delays) - p.cancelled
	fired := 0
	s := refill(e, p, func(int) { fired++ })
	c.fire = perOp(left, func() { s.fireAll(false) })
	if fired != left {
		panic(fmt.Sprintf("%s fired %d of %d timers", e.name, fired, left))
	}
	s = refill(e, p, func(int) {})
	c.ticked = perOp(left, func() { fireBySecond(s) })
	if e.tidy {
		s = refill(e, p, func(int) {})
		c.tidyFire = perOp(left, func() { s.fireAll(true) })
		c.longest = longestPause(refill(e, p, func(int) {}))
	}
	return c
}

func changes(e entrant, p plan) costs {
	n := len(p.delays)
	t := e.make(n, func(int) {})
	defer t.stop()

	var c costs
	bytes, mallocs := liveHeap()
	c.add = perOp(n, func() {
		for i, d := range p.delays {
			t.add(i, d)
		}
	})
	bytesFull, mallocsFull := liveHeap()
	c.bytes = max(float64(bytesFull)-float64(bytes), 0) / float64(n)
	c.allocs = float64(mallocsFull-mallocs) / float64(n)

	// Two orders take turns, since memory lies in the order of what was done last, and so often
	// that the collections which allocating causes come to their share.
	const passes = 3
	t.replace(p.worn, p.delays) // until now it may have grown
	size := min(n, 1_000_000)
	c.replace = perOp(passes*size, func() {
		for pass := range passes {
			order := p.order
			if pass%2 == 1 {
				order = p.worn
			}
			from := min(pass*size%n, n-size)
			t.replace(order[from:from+size], p.delays)
		}
	})
	some := p.worn[:min(n/10, 1_000_000)]
	c.move = perOp(len(some), func() {
		for k, i := range some {
			t.move(int(i), p.delays[k])
		}
	})
	gone := p.worn[n-p.cancelled:]
	c.cancel = perOp(len(gone), func() {
		for _, i := range gone {
			t.cancel(int(i))
		}
	})
	return c
}

// refill returns the contender with the timers of p that are not cancelled.
func refill(e entrant, p plan, fired func(int)) stepper {
	s := e.make(len(p.delays), fired).(stepper)
	for i, d := range p.delays {
		s.add(i, d)
	}
	for _, i := range p.order[:p.cancelled] {
		s.cancel(int(i))
	}
	runtime.GC()
	return s
}

// fireBySecond moves the clock on by seconds until nothing is left.
func fireBySecond(s stepper) {
	const second = 1000
	for now := uint64(0); ; now += second {
		for more := true; more; {
			_, more = s.advance(now)
		}
		if _, left := s.next(); !left {
			return
		}
	}
}

// longestPause returns the longest single step of firing everything, in CPU milliseconds of its
// thread.
func longestPause(s stepper) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var longest time.Duration
	timed := func(step func() bool) bool {
		begin := threadTime()
		more := step()
		longest = max(longest, threadTime()-begin)
		return more
	}
	for timed(func() bool { return s.tidy(0) }) {
	}
	for {
		now, ok := s.next()
		if !ok {
			return float64(longest) / float64(time.Millisecond)
		}
		for timed(func() bool { _, more := s.advance(now); return more }) {
		}
		timed(func() bool { return s.tidy(now) })
	}
}
