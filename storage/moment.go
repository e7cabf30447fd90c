package storage

import (
	"context"
	"fmt"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/pause"
)

// A Moment is what holds of all messages at one log index. It never changes.
type Moment struct {
	Index   uint64 // of the log entry that was applied last
	Time    int64  // the schedule's, epoch milliseconds
	Pending uint64 // messages alive
	IDsOpen bool   // see Store.IDsOpen
	Earlier uint64 // how often one without an id has come to an earlier place so far; see Store.MovedEarlier

	values values // without positions
	alive  *alive.Set
}

// A Standing says what becomes of a message that is alive.
type Standing uint8

// The standings. Of several that fit, the first one counts.
const (
	// Expired messages are delivered no more, and end when the leader comes to them.
	Expired Standing = 1 + iota
	// Claimed messages may be on their way, or may have arrived already. They have given up their ids.
	Claimed
	// Paused: its delay topic or its target is.
	Paused
	// Parked: its target is held, since it cannot be written to or is being released.
	Parked
	// Waiting for its time.
	Waiting
)

// String returns the standing's name, as users write it.
func (g Standing) String() string {
	switch g {
	case Expired:
		return "expired"
	case Claimed:
		return "claimed"
	case Paused:
		return "paused"
	case Parked:
		return "parked"
	case Waiting:
		return "waiting"
	}
	return fmt.Sprintf("standing %d", uint8(g))
}

// Standing returns that of a message which is alive at this moment. It goes by Due, Target, Topic
// and Expires.
func (m *Moment) Standing(e *Entry) Standing {
	_, held := m.values.holds.get(e.Target)
	switch {
	case e.Expires != 0 && e.Expires <= m.Time:
		return Expired
	case m.values.claimed(e.Ref(), e.Topic, e.Target):
		return Claimed
	case m.values.pauses.Has(pause.Topic, e.Topic) || m.values.pauses.Has(pause.Target, e.Target):
		return Paused
	case held:
		return Parked
	}
	return Waiting
}

// moment returns that of now. The caller has locked mu by lockAtIndex.
func (s *Store) moment() Moment {
	v := s.values
	v.holds, v.topics, v.bounds, v.positions = v.holds.clone(), v.topics.clone(), v.bounds.Clone(), nil
	v.lost = nil // the writer's
	return Moment{
		Index: v.appliedIndex, Time: v.time, Pending: s.alive.Count(), IDsOpen: v.idsOpen, Earlier: s.earlier,
		values: v, alive: s.alive.Freeze(),
	}
}

// lockAtIndex locks mu when no command is half carried out: a command changes memory step by step.
// It waits for the command to end, and returns ctx's cause if that comes first; then mu is not locked. After a
// command that could not be carried out it never does.
func (s *Store) lockAtIndex(ctx context.Context) error {
	for {
		s.mu.Lock()
		if !s.midway {
			return nil
		}
		if s.whole == nil {
			s.whole = make(chan struct{})
		}
		whole := s.whole
		s.mu.Unlock()
		select {
		case <-whole:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
