// Package clock decides which time messages are due by. A wall clock can be set, and one that
// is set forward by mistake would have everything delivered, irrevocably. So the wall clock is
// held against the monotonic clock and against the clocks of the other members.
package clock

import (
	"sync"
	"time"
)

const (
	// stepTolerance is how far the wall clock may move against the monotonic clock between two
	// readings before it counts as set, and slewing a tenth of the time between them. What slews
	// fastest, chrony, goes a twelfth.
	stepTolerance = 250 * time.Millisecond
	slewing       = 10
	// samplingTime is how long a reading of both clocks may take. One that took longer, since
	// the process lost its processor in between, would take that for a step.
	samplingTime = 10 * time.Millisecond
	samplings    = 5
	// mostShift keeps sums and differences of shifts in range: a wall clock can be set to any year.
	mostShift = 1 << 61 * time.Nanosecond
)

// Config says what a Clock reads.
type Config struct {
	Wall    func() time.Time
	MaxSkew time.Duration // beyond which the wall clock is not believed
	// OnStep, if set, is called by the goroutine whose reading finds that the wall clock was set
	// forward or, negative, back.
	OnStep func(step time.Duration)
}

// A Clock is the time of one node, for as long as its process runs. Any goroutine may use
// it; nothing blocks longer than Config.Wall does.
type Clock struct {
	cfg       Config
	began     time.Time // of the monotonic clock
	beganWall time.Time // the wall clock's reading then
	left      chan struct{}

	mu      sync.Mutex
	at      time.Duration // of the last reading, by the monotonic clock since began
	own     time.Duration // shift of the wall clock at the last reading
	steady  time.Duration // when it was last found to have been set; the same clock
	right   time.Duration // shift that is held to be right
	wrongBy time.Duration // at most
	follows bool          // right is whatever the wall clock says, since nobody confirms it
	stopped bool          // own has left right
	stop    time.Time     // then: what Due stands at, not after the wall clock nor the right time
	stops   int
}

// New returns a Clock that believes the wall clock until it is told otherwise.
func New(cfg Config) *Clock {
	c := &Clock{cfg: cfg, began: time.Now(), beganWall: cfg.Wall().Round(0), left: make(chan struct{}, 1), follows: true}
	return c
}

// Now returns the time that is held to be right. It never jumps before the members have
// agreed that it should, or, alone, before the new time was steady for a while.
func (c *Clock) Now() time.Time {
	s := c.read()
	if s.stopped {
		return s.right
	}
	return s.wall
}

// Due returns the time by which messages are due: Now, but it stands still while the wall
// clock is not believed, and is not after it. So what is to be due at once is due then, not Now: it stays due whichever
// time turns out to be right.
func (c *Clock) Due() time.Time {
	s := c.read()
	if s.stopped {
		return s.stop
	}
	return s.wall
}

// Wall returns the wall clock as it is, which is what the other members are told.
func (c *Clock) Wall() time.Time { return c.cfg.Wall() }

// Left is received from after the wall clock has left the time held to be right. One token
// may stand for several times.
func (c *Clock) Left() <-chan struct{} { return c.left }

// Elapsed returns the monotonic clock, for Measure.
func (c *Clock) Elapsed() time.Duration { return time.Since(c.began) }

// Measure returns what a member's answer says, which was asked at one moment and came at
// another, both by Elapsed. It reports false when the answer took too long to say anything.
func (c *Clock) Measure(member string, wall time.Time, asked, came time.Duration) (Reading, bool) {
	r := Reading{Member: member, Shift: c.shift(wall, (asked+came)/2), Error: (came - asked) / 2}
	return r, came-asked <= c.cfg.MaxSkew
}

// Judge returns what the readings of others prove now. Nothing changes before Settle.
func (c *Clock) Judge(others []Reading) Verdict {
	c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Evidence{
		MaxSkew: c.cfg.MaxSkew, Own: c.own, Right: c.right, Stopped: c.stopped, Steady: c.at - c.steady, Others: others,
	}.Judge()
}

// Settle takes the verdict for the truth.
func (c *Clock) Settle(v Verdict) {
	c.mu.Lock()
	c.right, c.wrongBy = v.Right, v.Error
	c.follows = v.Standing == Alone || v.Standing == Divided
	c.mu.Unlock()
	c.read()
}

// A State is what a Clock makes of the wall clock.
type State struct {
	Stopped bool
	Off     time.Duration // of the wall clock against the time held to be right
	Stops   int           // how often firing stopped so far
}

// State returns it as of the last reading.
func (c *Clock) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return State{Stopped: c.stopped, Off: c.own - c.right, Stops: c.stops}
}

// A sample is one reading, and what it means.
type sample struct {
	wall, right time.Time
	stop        time.Time // if stopped
	stopped     bool
}

// read reads both clocks and says whether the wall clock is to be believed. The clocks are read
// before the lock is taken, since a wall clock of a test may stand still for long.
func (c *Clock) read() sample { return c.take(c.sample()) }

// take says what a reading of both clocks means. One that was overtaken on the way here decides
// nothing, and nothing goes by its wall clock, which may have been set and put right since: the
// later reading says what the time was then.
func (c *Clock) take(wall time.Time, at time.Duration) sample {
	own := c.shift(wall, at)
	c.mu.Lock()
	var step time.Duration
	if at >= c.at {
		if moved := own - c.own; moved.Abs() >= max(stepTolerance, (at-c.at)/slewing) {
			step, c.steady = moved, at
		}
		c.at, c.own = at, own
		c.believe(wall)
	} else {
		wall = c.beganWall.Add(c.own + at)
	}
	s := sample{wall: wall, right: c.beganWall.Add(c.right + at), stop: c.stop, stopped: c.stopped}
	c.mu.Unlock()
	if step != 0 && c.cfg.OnStep != nil {
		c.cfg.OnStep(step)
	}
	return s
}

// believe decides whether messages are due by the wall clock, which was just read.
func (c *Clock) believe(wall time.Time) {
	limit := c.cfg.MaxSkew
	if c.stopped {
		limit -= limit / 4
	}
	off := (c.own - c.right).Abs() - c.wrongBy
	switch {
	case off > limit && !c.stopped:
		c.stopped, c.stop = true, wall
		if right := c.beganWall.Add(c.right + c.at); right.Before(wall) {
			c.stop = right
		}
		c.stops++
		select {
		case c.left <- struct{}{}:
		default: // told already
		}
	case off > limit && wall.Before(c.stop):
		c.stop = wall
	case off <= limit:
		c.stopped = false
	}
	if c.follows && !c.stopped {
		c.right, c.wrongBy = c.own, 0
	}
}

// sample reads the wall clock and the monotonic clock as if at one moment.
func (c *Clock) sample() (wall time.Time, at time.Duration) {
	for range samplings {
		before := c.Elapsed()
		wall = c.cfg.Wall().Round(0) // without a monotonic part
		if at = c.Elapsed(); at-before <= samplingTime {
			break
		}
	}
	return wall, at
}

// shift returns by how much a wall clock that says so is ahead of the monotonic clock.
func (c *Clock) shift(wall time.Time, at time.Duration) time.Duration {
	ahead := max(wall.Sub(c.beganWall), -2*mostShift) - at // Sub gives the nearest Duration that there is
	return min(max(ahead, -mostShift), mostShift)
}
