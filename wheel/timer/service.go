package timer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// forever is how long to sleep by a monotonic clock: it is never set, so nothing is to be seen.
const forever = time.Duration(1<<63 - 1)

// Service calls a function for each key when its time has come. All its methods may be called by
// any goroutine, also from within callbacks. Only Stop waits for callbacks.
//
// Keys are those of a map. A key that does not equal itself, such as NaN, is refused with ErrKey.
// If K is an interface, a key whose type cannot be compared, such as a slice, panics as in a map.
//
// A key has at most one timer pending. A timer is pending until a worker begins its callback: if
// Remove or Stop meet the callback, exactly one wins. Make a Service with New; a zero one refuses
// everything with ErrNotMade.
type Service[K comparable, V any] struct {
	cfg        Config[K, V]
	rearm      chan struct{} // capacity 1: look again, the alarm's sleep may be too long
	stop       chan struct{} // closed by Stop
	goroutines sync.WaitGroup

	// The alarm's own: what it has to report.
	step    time.Duration // by which the clock was set
	dropped []Event[K, V]

	// mu guards what follows and the timers. It is never held while foreign code runs, but for
	// Config.Now.
	mu      sync.Mutex
	queue   *DelayQueue[*Timer[K, V]]
	byKey   map[K]*Timer[K, V] // the pending ones
	peak    int                // most keys since byKey was made
	line    line[K, V]         // the pending ones that are due and wait for a worker
	workers int                // goroutines in work
	busy    int                // those of them in a callback
	apart   int                // callbacks that no worker runs: spawned, or told of a drop
	armed   int64              // deadline that the alarm sleeps for, ms
	unseen  int                // timers added since the alarm last looked
	starved bool               // the alarm waits for room in line
	stopped bool
	stats   Stats
}

// Stats is a snapshot of a service's work.
type Stats struct {
	Pending int    // timers set and not begun, those waiting for a worker included
	Waiting int    // timers that are due and wait for a worker
	Workers int    // goroutines that run callbacks, without those that Spawn starts
	Fired   uint64 // callbacks begun
	Dropped uint64 // firings dropped because all workers were busy
	Skipped uint64 // firings of periodic timers left out: still running, or long past
	Panics  uint64 // callbacks that panicked
}

// New starts a service. It runs one goroutine, and more while callbacks run, until Stop. Unusable
// settings are refused with ErrConfig.
func New[K comparable, V any](cfg Config[K, V]) (*Service[K, V], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service[K, V]{
		rearm: make(chan struct{}, 1),
		stop:  make(chan struct{}),
		byKey: make(map[K]*Timer[K, V]),
	}
	queue := QueueConfig{
		Now:    cfg.Now,
		OnStep: func(step time.Duration) { s.step = step }, // Pop calls it with mu held
	}
	if cfg.Now == nil {
		cfg.Now = Monotonic()
		queue = QueueConfig{Now: cfg.Now, MaxSleep: forever}
	}
	s.cfg, s.queue = cfg, NewDelayQueue[*Timer[K, V]](queue)
	s.goroutines.Go(s.alarm)
	return s, nil
}

// Stop ends the service and returns the timers that had not begun, by deadline: they are stopped
// and will never fire. It waits for callbacks that have begun, until ctx is done. Those that still
// run then go on by themselves, and the error says so. A nil ctx is context.Background(). A
// callback that calls Stop waits for itself, and so does the log's handler. Only the first Stop
// waits: any other returns ErrStopped at once.
func (s *Service[K, V]) Stop(ctx context.Context) (unfired []Event[K, V], err error) {
	if s == nil || s.queue == nil {
		return nil, ErrNotMade
	}
	if ctx == nil {
		ctx = context.Background()
	}
	unfired, err = s.takeAll(true)
	if err != nil {
		return nil, err
	}
	close(s.stop)
	ended := make(chan struct{})
	go func() {
		s.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return unfired, nil
	case <-ctx.Done():
		if !s.calling() {
			return unfired, nil
		}
		return unfired, fmt.Errorf("wait for running callbacks: %w", context.Cause(ctx))
	}
}

// calling reports whether a callback has begun, or is about to be told of a drop, and not returned.
func (s *Service[K, V]) calling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy+s.apart > 0
}

// Drain stops every pending timer and returns them, by deadline. The service goes on, and the keys
// can be set again. Other calls wait while Drain visits each timer: a million take some 0.2 s.
func (s *Service[K, V]) Drain() ([]Event[K, V], error) {
	if s == nil || s.queue == nil {
		return nil, ErrNotMade
	}
	return s.takeAll(false)
}

// Stats returns a snapshot.
func (s *Service[K, V]) Stats() Stats {
	if s == nil || s.queue == nil {
		return Stats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Pending, stats.Waiting, stats.Workers = len(s.byKey), s.line.waiting, s.workers
	return stats
}

// takeAll stops every pending timer and returns them by deadline. Sorting takes longest, so mu is
// free again by then.
func (s *Service[K, V]) takeAll(last bool) ([]Event[K, V], error) {
	taken, err := s.takeUnsorted(last)
	slices.SortFunc(taken, func(a, b Event[K, V]) int { return a.Due.Compare(b.Due) })
	return taken, err
}

func (s *Service[K, V]) takeUnsorted(last bool) ([]Event[K, V], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, ErrStopped
	}
	s.stopped = last
	taken := make([]Event[K, V], 0, len(s.byKey))
	for _, t := range s.byKey {
		taken = append(taken, t.event())
		t.end(Stopped)
	}
	clear(s.byKey)
	s.shrink()
	s.line.clear()
	s.look()                    // it may have been starved
	for range s.queue.Drain() { // their timers are taken already
	}
	return taken, nil
}
