package raftfsm

import (
	"sync"
	"time"
)

// A gate counts what is under way and lets nothing new begin once it is shut.
type gate struct {
	mu      sync.Mutex
	shut    bool
	running int
	idle    chan struct{} // closed when shut and nothing runs
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// start reports whether something may begin; if so, end must follow.
func (g *gate) start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.running++
	return true
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.shut && g.running == 0 {
		close(g.idle)
	}
}

// close lets nothing new begin and waits until nothing runs, but not longer than limit.
func (g *gate) close(limit time.Duration) {
	g.mu.Lock()
	g.shut = true
	if g.running == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.idle:
	case <-timer.C:
	}
}
