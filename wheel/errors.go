package wheel

import (
	"errors"
	"fmt"
)

// ErrTooFar is returned by [Wheel.Add] for a deadline beyond [MaxTick].
var ErrTooFar = errors.New("deadline beyond wheel.MaxTick: use a nearer one or a coarser tick")

// ErrFull is returned by [Wheel.Add] when some 2^32 timers are pending, or
// cancelled and not yet cleared away: advance, drain, or use a second wheel.
var ErrFull = errors.New("wheel full: advance, drain, or use a second wheel")

func tooFar(when uint64) error {
	return fmt.Errorf("wheel: add: deadline %d: %w", when, ErrTooFar)
}

func full(pending int) error {
	return fmt.Errorf("wheel: add: %d pending: %w", pending, ErrFull)
}
