package timer

import (
	"context"
	"log/slog"
	"runtime/debug"
)

// dispatch gets a due timer a worker, or a place in the queue for one. It reports false when the
// timer is to be dropped. The caller holds mu.
func (s *Service[K, V]) dispatch(t *Timer[K, V]) bool {
	t.handle = 0
	switch {
	case t.period > 0 && t.running:
		s.stats.Skipped++
		s.repeat(t)
	case s.room() > 0:
		s.line.enter(t)
		s.staff()
	case s.cfg.WhenFull == Spawn:
		e := s.begin(t)
		s.apart++
		s.goroutines.Go(func() { s.call(t, e, &s.apart) })
	default:
		s.stats.Dropped++
		return false
	}
	return true
}

// room is how many timers may enter the line: Queue, and one more for each worker that is free to
// take one, whether it has been started yet or not, but no more than a batch of those. The caller
// holds mu.
func (s *Service[K, V]) room() int {
	free := s.cfg.Workers - s.busy - s.line.waiting
	return s.cfg.Queue + min(free, alarmBatch)
}

// leave takes a waiting timer out of the line. The caller holds mu.
func (s *Service[K, V]) leave(t *Timer[K, V]) {
	s.line.leave(t)
	if s.starved && s.line.waiting <= s.cfg.Queue/2 {
		s.starved = false
		s.look()
	}
}

// staff starts a worker if a timer waits for one and the limit allows it. The caller holds mu.
func (s *Service[K, V]) staff() {
	if s.line.waiting > 0 && s.workers < s.cfg.Workers && !s.stopped {
		s.workers++
		s.goroutines.Go(s.work)
	}
}

// work runs callbacks until none waits. A worker exists only while there is work.
func (s *Service[K, V]) work() {
	defer func() { // deferred, so that a callback that ends its goroutine costs no worker
		s.mu.Lock()
		defer s.mu.Unlock()
		s.workers--
		s.staff()
	}()
	for {
		t, e, ok := s.take()
		if !ok {
			return
		}
		s.call(t, e, &s.busy)
	}
}

// take begins the next timer that waits.
func (s *Service[K, V]) take() (*Timer[K, V], Event[K, V], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.line.first()
	if t == nil {
		return nil, Event[K, V]{}, false
	}
	s.leave(t)
	s.busy++
	return t, s.begin(t), true
}

// begin is the moment of firing: from here on the timer cannot be stopped. The caller holds mu.
func (s *Service[K, V]) begin(t *Timer[K, V]) Event[K, V] {
	s.stats.Fired++
	e := t.event()
	t.running = true
	s.conclude(t, Fired)
	return e
}

// conclude lets a periodic timer go on to its next deadline and ends others. The caller holds mu.
func (s *Service[K, V]) conclude(t *Timer[K, V], state State) {
	if t.period > 0 {
		s.repeat(t)
		return
	}
	s.forget(t, state)
}

// repeat sets a periodic timer for its next deadline after now, on the grid of its first one, so
// that lateness never adds up. The caller holds mu.
func (s *Service[K, V]) repeat(t *Timer[K, V]) {
	t.due += t.period
	if behind := s.cfg.Now().UnixMilli() - t.due; behind >= 0 {
		missed := behind/t.period + 1
		t.due += missed * t.period
		s.stats.Skipped += uint64(missed)
	}
	handle, err := s.queue.Add(t.due, t)
	if err != nil {
		period := t.period
		s.goroutines.Go(func() { // where mu is free
			s.log(slog.LevelError, "periodic timer ends", "key", t.key, "period_ms", period, "error", err)
		})
		s.forget(t, Stopped)
		return
	}
	t.handle = handle
	s.wakeFor(t.due)
}

// call runs the callback, contains its panic, and then takes it off running, which mu guards. The
// last step is deferred apart, since the log's handler may end the goroutine.
func (s *Service[K, V]) call(t *Timer[K, V], e Event[K, V], running *int) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.running = false
		*running--
	}()
	defer func() { s.contain("callback panicked", e.Key, recover()) }()
	s.cfg.Fire(e)
}

// drop reports a dropped timer.
func (s *Service[K, V]) drop(e Event[K, V]) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.apart--
	}()
	defer func() { s.contain("Dropped panicked", e.Key, recover()) }()
	s.cfg.Dropped(e)
}

// contain counts and logs a panic, in this order: the log may end the goroutine.
func (s *Service[K, V]) contain(what string, key K, panicked any) {
	if panicked == nil {
		return
	}
	s.mu.Lock()
	s.stats.Panics++
	s.mu.Unlock()
	s.log(slog.LevelError, what, "key", key, "panic", panicked, "stack", string(debug.Stack()))
}

// log contains a panic of the log's handler: nobody is left to tell. The caller does not hold mu.
func (s *Service[K, V]) log(level slog.Level, what string, args ...any) {
	defer func() { _ = recover() }()
	s.cfg.Log.Log(context.Background(), level, what, args...)
}
