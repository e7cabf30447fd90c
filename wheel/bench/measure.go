package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// processTime is the CPU time of all goroutines so far, the collector's included. Unlike wall time
// it does not count what other programs on the machine do.
func processTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// threadTime is the CPU time of this thread so far, which must be locked.
func threadTime() time.Duration {
	const clockThreadCPU = 3
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}

// perOp runs f and returns its CPU nanoseconds for each of n operations.
func perOp(n int, f func()) float64 {
	if n == 0 {
		return 0
	}
	begin := processTime()
	f()
	return float64(processTime()-begin) / float64(n)
}

// liveHeap returns the bytes in use after a collection, and the allocations so far.
func liveHeap() (bytes, mallocs uint64) {
	runtime.GC()
	runtime.GC() // what the first one only finalized or swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.Mallocs
}

// cleanUp gives back what the last contender left.
func cleanUp() { debug.FreeOSMemory() }

func median(xs []float64) float64 {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// row prints one line of a markdown table.
func row(cells ...string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }

// header prints the head of a table whose first column is text.
func header(cells ...string) {
	fmt.Println()
	row(cells...)
	fmt.Println("|---|" + strings.Repeat("---:|", len(cells)-1))
}

// number prints x with three figures, thousands separated.
func number(x float64) string {
	switch {
	case x < 0.0005:
		return "0"
	case x < 10:
		return fmt.Sprintf("%.3g", x)
	}
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// count prints n as a power of ten if it is one.
func count(n int) string {
	exp := 0
	for m := n; m%10 == 0 && m > 0; m /= 10 {
		exp++
	}
	if s := fmt.Sprint(n); exp >= 3 && strings.Trim(s, "0") == "1" {
		return fmt.Sprintf("10^%d", exp)
	}
	return number(float64(n))
}

func millis(d time.Duration) string { return number(float64(d) / float64(time.Millisecond)) }
