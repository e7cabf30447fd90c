package timer

import (
	"fmt"
	"log/slog"
	"time"
)

const (
	defaultWorkers = 256
	defaultQueue   = 1024
	maxQueue       = 1 << 20
)

// Config configures a Service. Only Fire must be set.
type Config[K comparable, V any] struct {
	// Fire is called for each timer that is due, on a goroutine of the service: at most Workers at
	// a time (but see Spawn). It may block, panic (which is logged), and use the service.
	Fire func(Event[K, V])

	// Workers is how many calls of Fire run at once; 0 means 256.
	Workers int

	// Queue is how many timers that are due may wait for a worker while none is free; 0 means 1024,
	// and 1<<20 is the most. Memory is taken only for those that wait.
	Queue int

	// WhenFull says what becomes of a timer that is due while Workers are busy and Queue is full.
	WhenFull WhenFull

	// Dropped is told of each timer that Drop has dropped. It is called on the goroutine that wakes
	// for the timers, so it must not block. It may panic (which is logged), and use the service.
	// Drop needs it; the others never call it.
	Dropped func(Event[K, V])

	// MaxPending limits how many timers may be pending at a time; 0 means no limit.
	MaxPending int

	// Now is the clock; nil means [Monotonic], which does not see the system's clock being set.
	// With another clock the service wakes once a second to see whether it was set. When it is set
	// back, pending timers wait until it has come to their deadlines again, those of Every too:
	// Move gives them one on the new time. It is called while the service is locked, so it must not
	// use it, block or panic.
	Now func() time.Time

	// Log receives panics of callbacks and steps of the clock; nil means slog.Default(). Its
	// handler may use the service; if it panics, the record is lost and nothing else.
	Log *slog.Logger
}

// WhenFull says what becomes of a timer that is due while all workers are busy and the queue of
// those waiting for one is full.
type WhenFull uint8

const (
	// Wait leaves it in the wheel until there is room: it fires late, and until then is pending and
	// can be moved and removed.
	Wait WhenFull = iota

	// Spawn fires it at once in a goroutine of its own, beyond Workers and without bound. Those
	// that wait in line may be late all the same: they stay there until a worker is free.
	Spawn

	// Drop does not fire it, reports it to Config.Dropped, and goes on. A periodic timer loses this
	// one firing only.
	Drop
)

// Event is one firing of a timer, or a timer that will not fire any more.
type Event[K comparable, V any] struct {
	Key   K
	Value V
	Due   time.Time // the deadline, rounded up to the millisecond, by the service's clock
}

// withDefaults returns c complete, or ErrConfig naming the field that cannot work.
func (c Config[K, V]) withDefaults() (Config[K, V], error) {
	switch {
	case c.Fire == nil:
		return c, fmt.Errorf("%w: Fire is nil, want the function to call", ErrConfig)
	case c.Workers < 0:
		return c, fmt.Errorf("%w: Workers is %d, want 1 or more, or 0 for %d", ErrConfig, c.Workers, defaultWorkers)
	case c.Queue < 0 || c.Queue > maxQueue:
		return c, fmt.Errorf("%w: Queue is %d, want 1 to %d, or 0 for %d", ErrConfig, c.Queue, maxQueue, defaultQueue)
	case c.MaxPending < 0:
		return c, fmt.Errorf("%w: MaxPending is %d, want 1 or more, or 0 for no limit", ErrConfig, c.MaxPending)
	case c.WhenFull > Drop:
		return c, fmt.Errorf("%w: WhenFull is %d, want Wait, Spawn or Drop", ErrConfig, c.WhenFull)
	case c.WhenFull == Drop && c.Dropped == nil:
		return c, fmt.Errorf("%w: Dropped is nil, but WhenFull is Drop: want the function to tell", ErrConfig)
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.Queue == 0 {
		c.Queue = defaultQueue
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}
