package timer

import "errors"

var (
	// ErrNotMade is returned by the methods of a zero-value DelayQueue or Service.
	ErrNotMade = errors.New("timer: not made by NewDelayQueue or New")

	// ErrDeadline is returned for a deadline before 1970 or beyond the wheel's range.
	ErrDeadline = errors.New("timer: deadline out of range")

	// ErrConfig is returned by New for a setting that cannot work.
	ErrConfig = errors.New("timer: bad config")

	// ErrDelay is returned for a negative delay, and for a period that is not whole milliseconds.
	ErrDelay = errors.New("timer: bad delay")

	// ErrKey is returned for a key that does not equal itself, such as NaN: it finds no timer.
	ErrKey = errors.New("timer: bad key")

	// ErrFull is returned when as many timers are pending as Config.MaxPending allows.
	ErrFull = errors.New("timer: too many timers pending")

	// ErrNotPending is returned when no timer is pending under the key.
	ErrNotPending = errors.New("timer: no timer pending under this key")

	// ErrStopped is returned after Stop.
	ErrStopped = errors.New("timer: service is stopped")
)
