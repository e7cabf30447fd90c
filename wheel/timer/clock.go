package timer

import (
	"math"
	"time"
)

// Monotonic returns a clock that starts at the present wall time and from then on only follows the
// monotonic clock: whatever is done to the system's clock, it neither jumps nor goes back. It is
// the clock of a Service unless another is given, and the right one for delays ("in five seconds");
// for deadlines of the wall ("at noon") use [time.Now].
func Monotonic() func() time.Time {
	base := time.Now()
	wall := base.Round(0) // without its monotonic part, so that Sub and Compare use what we add
	return func() time.Time { return wall.Add(time.Since(base)) }
}

// CeilMilli returns t as epoch milliseconds, rounded up: a timer set for it never fires before t.
// What lies beyond the range of int64 gives its nearest end, of which only the lower is before t.
func CeilMilli(t time.Time) int64 {
	const most, least = math.MaxInt64 / 1000, math.MinInt64 / 1000 // whole seconds
	switch sec := t.Unix(); {
	case sec >= most:
		return math.MaxInt64
	case sec < least:
		return math.MinInt64
	}
	ms := t.UnixMilli() // rounds down, before 1970 too
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// stepTolerance is how far the wall clock may move against the monotonic one between two readings
// before it counts as a step. Slewing stays far below it (500 ppm, with a reading at least every
// second while anything is pending), and so does a goroutine that loses the processor between the
// two readings.
const stepTolerance = 250 * time.Millisecond

// stepDetector compares the wall clock with the monotonic clock from one reading to the next.
type stepDetector struct {
	base time.Time     // monotonic origin
	wall time.Time     // last reading of the wall clock, without a monotonic part
	mono time.Duration // last reading of the monotonic clock, since base
}

func newStepDetector(wall time.Time) stepDetector {
	return stepDetector{base: time.Now(), wall: wall.Round(0)}
}

// observe takes the next reading of the wall clock and returns by how much it has been set forward
// (positive) or back since the last one, 0 if it has not.
func (s *stepDetector) observe(wall time.Time) time.Duration {
	wall, mono := wall.Round(0), time.Since(s.base)
	step := wall.Sub(s.wall) - (mono - s.mono)
	s.wall, s.mono = wall, mono
	if step.Abs() < stepTolerance {
		return 0
	}
	return step
}
