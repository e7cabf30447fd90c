// Command bench measures the timing wheel beside what Go programs use instead, all in one run, and
// prints markdown tables.
//
//	go run . -sizes 10000,100000,1000000,10000000 -pending 10000000,1000000 -firing 10000,100000,1000000,10000000 > tables.md
//
// Operations and firing are measured in CPU time of the process, so that other programs on the
// machine disturb little; lateness can only be measured in real time. Compare ratios, not
// absolute times.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	sizes := flag.String("sizes", "10000,100000", "operations: numbers of timers, separated by commas")
	rounds := flag.Int("rounds", 3, "operations: how many times to measure each contender; the lowest counts")
	pending := flag.String("pending", "1000000", "collector: numbers of timers")
	firing := flag.String("firing", "100000", "realtime: numbers of timers")
	idleSpan := flag.Duration("idle", 10*time.Second, "idle: how long to watch each runtime")
	// realtime comes after collector: a million goroutines at one instant leave descriptors behind
	// that every later collection visits.
	tables := flag.String("tables", "operations,collector,realtime,idle", "tables to print, separated by commas")
	flag.Parse()
	fmt.Printf("%s, %d CPUs\n", runtime.Version(), runtime.GOMAXPROCS(0))
	for table := range strings.SplitSeq(*tables, ",") {
		switch table {
		case "operations":
			operations(parseSizes(*sizes), *rounds)
		case "collector":
			collector(parseSizes(*pending))
		case "realtime":
			realTime(parseSizes(*firing))
		case "idle":
			idle(*idleSpan)
		default:
			fail("-tables: no table %q, want operations, collector, realtime or idle", table)
		}
	}
}

func parseSizes(list string) (ns []int) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1000 {
			fail("%q is no number of timers, want whole numbers of 1000 or more", field)
		}
		ns = append(ns, n)
	}
	return ns
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(2)
}
