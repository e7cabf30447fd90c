package wheel

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of this process: what else the machine runs
// does not count, the garbage collector of this process does.
func cpuTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
