package wheel

// MaxTick is the last tick a wheel knows: 2^48-1, in milliseconds 8,925 years.
const MaxTick = 1<<(slotBits*levelCount) - 1

// A Wheel holds timers: values of type T with a deadline each, in ticks. What a
// tick is, and where ticks are counted from, is the caller's choice.
//
// It has no clock, no goroutine and no lock; it must not be used by two
// goroutines at once. The zero Wheel is empty, at tick 0, ready to use. A Wheel
// must not be copied after first use.
//
// Memory is taken in pages: the first timer costs some 130 KB, and with a large
// T 4,096 times its size, 4 MB for one of a kilobyte. A value is copied when it
// is added and up to twice when it fires: let T be a pointer if it is large.
type Wheel[T any] struct {
	_      noCopy
	cursor uint64
	live   int
	dead   int               // cancelled timers whose hint is still in a slot
	levels uint8             // bit l: path[l] is not empty
	path   [levelCount]*node // the node of each level that the cursor is in
	run    run               // timers taken out of the levels, sorted
	behind behind            // timers with a deadline before the cursor
	nodes  nodePool
	chunks chunkPool
	slab   slab[T]
	sweep  sweep

	fetched [chunkHints]T // what fetch reads into; zero between the calls
}

// noCopy makes go vet find copies of what contains it: it looks for a Lock method.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Expired is a timer that has left the wheel.
type Expired[T any] struct {
	// When is the deadline as it was asked for in Add or Move, also if that
	// had passed already.
	When  uint64
	Value T
}

// New returns an empty wheel at tick cursor, which ought to be near the
// earliest deadline that will be added: those before the cursor cost
// O(log n), not O(1). A cursor beyond [MaxTick] is taken as MaxTick.
func New[T any](cursor uint64) *Wheel[T] {
	return &Wheel[T]{cursor: min(cursor, MaxTick)}
}

// Len returns the number of pending timers.
func (w *Wheel[T]) Len() int { return w.live }

// Cursor returns the tick that the levels are counted from. It never goes
// back, and is never beyond the latest now given to Advance or Maintain.
func (w *Wheel[T]) Cursor() uint64 { return w.cursor }
