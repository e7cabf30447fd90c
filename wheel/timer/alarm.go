package timer

import (
	"log/slog"
	"math"
	"time"

	"github.com/carillonmq/carillon/wheel"
)

const (
	alarmBatch = 256  // timers taken from the wheel per lock hold: some 30 us
	crowd      = 4096 // added timers that may make it worth splitting slots ahead
)

// alarm sleeps until timers are due and hands them to the workers.
func (s *Service[K, V]) alarm() {
	stopped := false
	defer func() {
		if !stopped { // foreign code in report has ended this goroutine: another goes on
			s.goroutines.Go(s.alarm)
		}
	}()
	batch := make([]wheel.Expired[*Timer[K, V]], 0, alarmBatch)
	for {
		wake, more := s.collect(batch)
		s.report()
		if more {
			continue
		}
		select {
		case <-wake:
		case <-s.rearm:
		case <-s.stop:
			stopped = true
			return
		}
	}
}

// collect takes what is due from the wheel, one batch, and dispatches it. When no more is due it
// returns the channel to wait on; none when only a worker can make room.
func (s *Service[K, V]) collect(batch []wheel.Expired[*Timer[K, V]]) (wake <-chan time.Time, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = 0
	room := cap(batch)
	if s.cfg.WhenFull == Wait {
		room = min(room, s.room())
	}
	if s.starved = room == 0; s.starved {
		s.armed = math.MinInt64
		return nil, false
	}
	due, more := s.queue.Pop(batch[:0:room])
	for _, e := range due {
		if !s.dispatch(e.Value) {
			s.dropped = append(s.dropped, e.Value.event())
			s.apart++
			s.conclude(e.Value, Dropped)
		}
	}
	clear(due) // so that batch keeps no fired timer alive
	if more {
		return nil, true
	}
	s.armed = math.MaxInt64
	if next, ok := s.queue.Next(); ok {
		s.armed = next
	}
	return s.queue.C(), false
}

// report tells of what collect has met. It runs foreign code, so mu must be free; that code may end
// the goroutine, so what is about to be told is taken off first.
func (s *Service[K, V]) report() {
	if step := s.step; step != 0 {
		s.step = 0
		s.log(slog.LevelWarn, "clock was set", "by", step)
	}
	for len(s.dropped) > 0 {
		e := s.dropped[0]
		s.dropped = s.dropped[1:]
		s.drop(e)
	}
	s.dropped = nil // so that it keeps no dropped value alive
}

// wakeFor makes the alarm look again if it would sleep beyond due, the deadline of an added timer.
func (s *Service[K, V]) wakeFor(due int64) {
	s.unseen++
	if due < s.armed || s.unseen >= crowd {
		s.look()
	}
}

// look makes the alarm look at the wheel.
func (s *Service[K, V]) look() {
	select {
	case s.rearm <- struct{}{}:
	default: // it will look anyway
	}
}
