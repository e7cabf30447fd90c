package main

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"
)

// collector prints what pending timers cost Go's garbage collector.
func collector(sizes []int) {
	w := workloads()[0]
	for _, n := range sizes {
		fmt.Printf("\n### Garbage collection with %s timers pending\n", count(n))
		header("", "one cycle, wall ms", "CPU ms", "GC share of CPU while 2 GB of garbage is made")
		p := w.plan(n)
		for _, e := range within(n, append(structures(), runtimes()...)) {
			wall, cpu, share := collect(e, p)
			row(e.name, number(wall), number(cpu), fmt.Sprintf("%.1f %%", 100*share))
		}
	}
}

func collect(e entrant, p plan) (wall, cpu, share float64) {
	defer cleanUp()
	t := e.make(len(p.delays), func(int) {})
	defer t.stop()
	for i, d := range p.delays {
		t.add(i, d)
	}
	runtime.GC()
	const cycles = 3
	var walls, cpus []float64
	for range cycles {
		before, begin := readGC(), time.Now()
		runtime.GC()
		walls = append(walls, time.Since(begin).Seconds()*1000)
		cpus = append(cpus, (readGC().gc-before.gc)*1000)
	}
	before := readGC()
	makeGarbage(2 << 30)
	runtime.GC() // the figures are brought up to date by a cycle
	after := readGC()
	return median(walls), median(cpus), (after.gc - before.gc) / (after.busy - before.busy)
}

// makeGarbage allocates bytes in objects of 256.
func makeGarbage(bytes int) {
	var keep [64]*[256]byte // so that they are on the heap
	for i := range bytes / 256 {
		keep[i%len(keep)] = new([256]byte)
	}
	runtime.KeepAlive(keep)
}

// gcTimes are CPU seconds since the start.
type gcTimes struct{ gc, busy float64 }

func readGC() gcTimes {
	samples := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/cpu/classes/idle:cpu-seconds"},
	}
	metrics.Read(samples)
	return gcTimes{
		gc:   samples[0].Value.Float64(),
		busy: samples[1].Value.Float64() - samples[2].Value.Float64(),
	}
}
