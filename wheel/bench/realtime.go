package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// mostSpawned is how many goroutines may be there at a time: ten million need more than 24 GB.
const mostSpawned = 1_000_000

// realTime prints how late and how early the runtimes fire.
func realTime(sizes []int) {
	for _, n := range sizes {
		fmt.Printf("\n### %s timers in real time\n", count(n))
		header("ms of lateness", "p50", "p99", "max", "early", "earliest by, ms", "CPU s", "at one instant: p50", "p99", "max", "early", "CPU s")
		for _, e := range within(n, runtimes()) {
			if e.spawn && n > mostSpawned {
				row(e.name, "not run")
				continue
			}
			spread := runRealTime(e, n, 2*time.Second)
			instant := runRealTime(e, n, 0)
			row(append(append([]string{e.name}, spread.cells(true)...), instant.cells(false)...)...)
		}
	}
}

// punctuality is how far firings were from their deadlines.
type punctuality struct {
	late []time.Duration // sorted; negative: early
	cpu  time.Duration
}

func (p punctuality) cells(withWorst bool) []string {
	at := func(q float64) string { return millis(max(p.late[int(q*float64(len(p.late)-1))], 0)) }
	early, _ := slices.BinarySearch(p.late, 0)
	cells := []string{at(0.5), at(0.99), at(1), number(float64(early))}
	if withWorst {
		cells = append(cells, millis(max(-p.late[0], 0)))
	}
	return append(cells, number(p.cpu.Seconds()))
}

// runRealTime sets n timers whose deadlines lie within a span that begins when all are set, and
// waits until they have fired. Deadlines are nanoseconds: what rounds them to its tick is late, or
// early, by that.
func runRealTime(e entrant, n int, span time.Duration) punctuality {
	defer cleanUp()
	r := rand.New(rand.NewPCG(2, uint64(n)))
	deadlines := make([]time.Duration, n)
	// More than the slowest needs: of up to a million that is go-zero.
	setUp := 3*time.Second + time.Duration(min(n, 1_000_000))*8*time.Microsecond + time.Duration(n)*2*time.Microsecond
	for i := range deadlines {
		deadlines[i] = setUp
		if span > 0 {
			deadlines[i] += time.Duration(r.Int64N(int64(span)))
		}
	}
	at := make([]time.Duration, n) // when each fired; the callback does no more than it must
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	var begin time.Time
	t := e.make(n, func(i int) {
		at[i] = time.Since(begin)
		if left.Add(-1) == 0 {
			close(done)
		}
	})
	defer t.stop()
	cpu := processTime()
	begin = time.Now()
	for i, d := range deadlines {
		t.add(i, max(d-time.Since(begin), 1)) // some refuse 0 and less
	}
	t.start()
	<-done
	p := punctuality{late: at, cpu: processTime() - cpu}
	for i, d := range deadlines {
		p.late[i] -= d
	}
	slices.Sort(p.late)
	return p
}

// idle prints what one timer in an hour costs.
func idle(span time.Duration) {
	fmt.Printf("\n### Idle: one timer in an hour, CPU ms in %v\n", span)
	header("", "CPU ms")
	row("nothing", millis(idleTime(span)))
	for _, e := range runtimes() {
		t := e.make(1, func(int) {})
		t.add(0, time.Hour)
		t.start()
		row(e.name, millis(idleTime(span)))
		t.stop()
	}
}

func idleTime(span time.Duration) time.Duration {
	cleanUp()
	begin := processTime()
	time.Sleep(span)
	return processTime() - begin
}
