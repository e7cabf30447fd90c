package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A connection is a Kafka client and who uses it.
//
// A topic that has left must not come back. When franz-go forgets a topic, it begins the topic's sequence
// numbers anew, at times under the same producer epoch; Kafka would then take new records for repeats of
// old ones, and acknowledge without writing them. Another client has another producer id.
type connection struct {
	client *kgo.Client
	users  int             // targets on it, and questions that wait for their answer
	left   map[string]bool // topics that were on it
}

func connect(options []kgo.Opt) (*connection, error) {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &connection{client: client, left: make(map[string]bool)}, nil
}

// join gives the target a connection: one of its own when it is isolated, else the shared one, which is
// renewed when the topic has left it before. The caller holds mu.
func (s *Sink) join(t *target) error {
	c := s.shared
	if t.isolated || c.left[t.topic] {
		fresh, err := connect(s.options)
		if err != nil {
			return err
		}
		if !t.isolated {
			s.shared = fresh
			s.release(c)
		}
		c = fresh
	}
	c.users++
	t.connection, t.healthy, t.stale = c, false, false
	return nil
}

// borrow returns the shared connection's client for a question. It stays open until giveBack is called, though
// the shared connection is renewed meanwhile; Close waits for that.
func (s *Sink) borrow() (client *kgo.Client, giveBack func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errSinkClosed
	}
	c := s.shared
	c.users++
	s.background.Add(1)
	return c.client, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.users--
		s.release(c)
		s.background.Done()
	}, nil
}

// leave takes the target off its connection, which then forgets the topic or, with nobody on it, is
// closed. The caller holds mu.
func (s *Sink) leave(t *target) {
	c := t.connection
	if c == nil {
		return
	}
	t.connection = nil
	c.users--
	c.left[t.topic] = true
	if c.users > 0 || c == s.shared {
		s.background.Go(func() { c.client.PurgeTopicsFromProducing(t.topic) })
		return
	}
	s.release(c)
}

// leaveStale takes the target off a connection whose client has a wrong idea of the topic, as soon as
// nothing of it is outstanding there. The caller holds mu.
func (s *Sink) leaveStale(t *target) {
	if t.stale && len(t.outstanding) == 0 && !s.closed {
		s.leave(t)
	}
}

// release closes a connection that is neither used nor shared. The caller holds mu.
func (s *Sink) release(c *connection) {
	if c.users == 0 && c != s.shared {
		s.background.Go(c.client.Close)
	}
}
