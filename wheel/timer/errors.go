package timer

import "errors"

var (
	// ErrNotMade is returned by the methods of a zero-value DelayQueue or Service.
	ErrNotMade = errors.New("timer: not made by NewDelayQueue or New")

	// ErrDeadline is returned for a deadline before 1970 or beyond the wheel's range.
	ErrDeadline = errors.New("timer: deadline out of range")
)
