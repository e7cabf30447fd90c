package brokertest

import (
	"sync"
	"time"
)

// A clock is one node's wall clock: it can be set, it can go wrong by some time in each second,
// and it can stand still.
type clock struct {
	mu      sync.Mutex
	history []setting     // how wrong it was, since when; the last one holds
	gate    chan struct{} // not nil while frozen: closed by thaw
	reads   int           // how often it was read
}

// A setting says how wrong a clock is from a moment on.
type setting struct {
	at     time.Time
	offset time.Duration // positive: ahead
	drift  time.Duration // gained in each second since
}

// wrong is how far the clock is ahead at that time.
func (s setting) wrong(at time.Time) time.Duration {
	return s.offset + time.Duration(float64(at.Sub(s.at))*s.drift.Seconds())
}

func newClock() *clock { return &clock{history: []setting{{at: time.Now()}}} }

func (c *clock) now() time.Time {
	for {
		c.mu.Lock()
		c.reads++
		now, gate := time.Now(), c.gate
		wrong := c.history[len(c.history)-1].wrong(now)
		c.mu.Unlock()
		if gate == nil {
			return now.Add(wrong)
		}
		<-gate
	}
}

// timesRead returns how often the clock was read.
func (c *clock) timesRead() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// change makes another setting of the one that holds, which is wrong by that much now.
func (c *clock) change(other func(now setting) setting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.history[len(c.history)-1]
	now := time.Now()
	c.history = append(c.history, other(setting{at: now, offset: last.wrong(now), drift: last.drift}))
}

// step sets the clock by so much.
func (c *clock) step(by time.Duration) {
	c.change(func(s setting) setting { s.offset += by; return s })
}

// drifts lets the clock gain so much in each second.
func (c *clock) drifts(perSecond time.Duration) {
	c.change(func(s setting) setting { s.drift = perSecond; return s })
}

// well sets the clock right, which is a step as well.
func (c *clock) well() {
	c.change(func(s setting) setting { return setting{at: s.at} })
}

// isRight reports whether the clock tells the time, and goes on doing so.
func (c *clock) isRight() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.history[len(c.history)-1]
	return last.offset == 0 && last.drift == 0
}

// isDrifting reports whether the clock gains or loses.
func (c *clock) isDrifting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history[len(c.history)-1].drift != 0
}

// settings returns how wrong the clock was when, from its beginning on.
func (c *clock) settings() []setting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history
}

func (c *clock) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

func (c *clock) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.gate)
	c.gate = nil
}
