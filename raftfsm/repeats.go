package raftfsm

import (
	"sync"
	"time"
)

const (
	// repeatEvery paces a line about a peer that is down or refused: it is tried several times a second.
	repeatEvery = time.Minute
	// mostSaid bounds what is remembered: a few lines for each peer.
	mostSaid = 100
)

// repeats tells the lines of a log apart that come again and again.
type repeats struct {
	mu   sync.Mutex
	said map[string]time.Time // by subject
}

func newRepeats() *repeats { return &repeats{said: map[string]time.Time{}} }

// again reports whether the subject was new less than repeatEvery ago, and notes it as new now if not.
func (r *repeats) again(subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if at, ok := r.said[subject]; ok && now.Sub(at) < repeatEvery {
		return true
	}
	if len(r.said) >= mostSaid {
		clear(r.said)
	}
	r.said[subject] = now
	return false
}
