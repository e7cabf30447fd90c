// Package repeats tells log lines apart that come again and again.
package repeats

import (
	"sync"
	"time"
)

const (
	// Every is the least time between two lines about one subject: who is down is tried several
	// times a second.
	Every = time.Minute
	// mostSubjects bounds what is remembered: a few lines for each peer or Kafka broker.
	mostSubjects = 100
)

// Subjects remembers what lines were about lately. Any goroutine may use it.
type Subjects struct {
	mu   sync.Mutex
	said map[string]time.Time // by subject
}

// New returns Subjects that are all new.
func New() *Subjects { return &Subjects{said: make(map[string]time.Time)} }

// Again reports whether the subject was new less than Every ago, and notes it as new now if not.
func (s *Subjects) Again(subject string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, ok := s.said[subject]; ok && now.Sub(at) < Every {
		return true
	}
	if len(s.said) >= mostSubjects {
		clear(s.said)
	}
	s.said[subject] = now
	return false
}
