package wheel

import (
	"errors"
	"fmt"
)

// ErrTooFar is returned by [Wheel.Add] for a deadline beyond [MaxTick].
var ErrTooFar = errors.New("deadline beyond wheel.MaxTick: use a nearer one or a coarser tick")

// ErrFull is returned by [Wheel.Add] when no id is left: 2^32-2^20 timers, some
// 4.29 billion, are pending, or cancelled and not yet cleared away, or their ids
// are worn out: advance, drain, or use a second wheel.
var ErrFull = errors.New("wheel full: advance, drain, or use a second wheel")

func tooFar(when uint64) error {
	return fmt.Errorf("wheel: add: deadline %d: %w", when, ErrTooFar)
}

func full(pending int) error {
	return fmt.Errorf("wheel: add: %d pending: %w", pending, ErrFull)
}
