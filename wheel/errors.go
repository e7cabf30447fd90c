package wheel

import "errors"

// ErrTooFar is returned by [Wheel.Add] for a deadline beyond [MaxTick].
var ErrTooFar = errors.New("deadline beyond wheel.MaxTick: use a nearer one or a coarser tick")

// ErrFull is returned by [Wheel.Add] when 2^32-1 timers are pending, or
// cancelled and not yet cleared away: advance, drain, or use a second wheel.
var ErrFull = errors.New("wheel full: advance, drain, or use a second wheel")
