package timer

import (
	"fmt"
	"time"
)

// Set makes key fire once with value, after delay. A timer that is pending under key gets the new
// value and deadline, and is not periodic any more. Set refuses with ErrDelay (negative), ErrKey
// (not equal to itself), ErrFull, ErrDeadline (only with a clock far in the future) and ErrStopped;
// a pending timer then stays as it was.
func (s *Service[K, V]) Set(key K, value V, delay time.Duration) (*Timer[K, V], error) {
	if delay < 0 {
		return nil, fmt.Errorf("%w: %v, want 0 or more", ErrDelay, delay)
	}
	return s.set(key, value, delay, 0)
}

// Every makes key fire with value each period, first after one period, in whole milliseconds. The
// deadlines keep to their grid however late one is. A firing is skipped while the callback of the
// last one still runs, and those that were missed are not made up for. Otherwise Every is like Set.
func (s *Service[K, V]) Every(key K, value V, period time.Duration) (*Timer[K, V], error) {
	if period < time.Millisecond || period%time.Millisecond != 0 {
		return nil, fmt.Errorf("%w: period %v, want whole milliseconds, 1ms or more", ErrDelay, period)
	}
	return s.set(key, value, period, period.Milliseconds())
}

// Move gives the timer pending under key a new deadline, delay from now; a periodic one goes on
// from there. It returns ErrNotPending when there is none: it may just have fired.
func (s *Service[K, V]) Move(key K, delay time.Duration) error {
	if s == nil || s.queue == nil {
		return ErrNotMade
	}
	if delay < 0 {
		return fmt.Errorf("%w: %v, want 0 or more", ErrDelay, delay)
	}
	err := s.move(key, delay)
	if err == ErrNotPending { // the key is printed with mu free: its String method is foreign code
		return fmt.Errorf("%w: %v", err, key)
	}
	return err
}

// Remove stops the timer pending under key and returns its value. It reports whether there was one.
// True means that its callback will not begin any more; false, that it had begun or was never set.
func (s *Service[K, V]) Remove(key K) (value V, stopped bool) {
	if s == nil || s.queue == nil {
		return value, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.byKey[key]
	if !ok {
		return value, false
	}
	value = t.value
	s.forget(t, Stopped)
	return value, true
}

// Len returns how many timers are pending.
func (s *Service[K, V]) Len() int { return s.Stats().Pending }

func (s *Service[K, V]) set(key K, value V, delay time.Duration, period int64) (*Timer[K, V], error) {
	if s == nil || s.queue == nil {
		return nil, ErrNotMade
	}
	if same := key; same != key {
		return nil, fmt.Errorf("%w: %v does not equal itself, want a key that does", ErrKey, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, ErrStopped
	}
	t, ok := s.byKey[key]
	if !ok {
		return s.add(key, value, s.after(delay), period)
	}
	if err := s.reschedule(t, s.after(delay)); err != nil {
		return nil, err
	}
	t.value, t.period = value, period
	return t, nil
}

func (s *Service[K, V]) move(key K, delay time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	t, ok := s.byKey[key]
	if !ok {
		return ErrNotPending
	}
	return s.reschedule(t, s.after(delay))
}

func (s *Service[K, V]) add(key K, value V, due, period int64) (*Timer[K, V], error) {
	if s.cfg.MaxPending > 0 && len(s.byKey) >= s.cfg.MaxPending {
		return nil, fmt.Errorf("%w: %d, the limit", ErrFull, len(s.byKey))
	}
	t := &Timer[K, V]{service: s, key: key, value: value, due: due, period: period, state: Pending}
	handle, err := s.queue.Add(due, t)
	if err != nil {
		return nil, err
	}
	t.handle = handle
	s.byKey[key] = t
	s.peak = max(s.peak, len(s.byKey))
	s.wakeFor(due)
	return t, nil
}

func (s *Service[K, V]) reschedule(t *Timer[K, V], due int64) error {
	if t.waiting { // it has left the wheel
		handle, err := s.queue.Add(due, t)
		if err != nil {
			return err
		}
		s.leave(t)
		t.handle = handle
	} else {
		handle, ok := s.queue.Move(t.handle, due)
		if !ok {
			return fmt.Errorf("%w: %d ms", ErrDeadline, due)
		}
		t.handle = handle
	}
	t.due = due
	s.wakeFor(due)
	return nil
}

// after returns the deadline that lies delay ahead, rounded up.
func (s *Service[K, V]) after(delay time.Duration) int64 { return CeilMilli(s.cfg.Now().Add(delay)) }

// forget ends a pending timer and frees its key.
func (s *Service[K, V]) forget(t *Timer[K, V], state State) {
	if t.waiting {
		s.leave(t)
	}
	s.queue.Cancel(t.handle)
	delete(s.byKey, t.key)
	t.end(state)
	s.shrink()
}

// shrink gives the memory of a map that was large back, once it is empty: a map never shrinks by
// itself, and copying a half-empty one would hold the lock too long.
func (s *Service[K, V]) shrink() {
	if len(s.byKey) == 0 && s.peak > 1024 {
		s.byKey = make(map[K]*Timer[K, V])
		s.peak = 0
	}
}
