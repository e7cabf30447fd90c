package wheel

import "math/bits"

// Next returns the tick to call [Wheel.Advance] at: no pending timer has a deadline
// before it. It may be too early, after a Cancel or a Move, and then the Advance
// returns nothing; it is never too late. It reports false when nothing is
// pending.
func (w *Wheel[T]) Next() (when uint64, ok bool) {
	if w.live == 0 {
		return 0, false
	}
	return w.lowest()
}

// lowest returns a lower bound of the deadlines of all timers, the cancelled ones
// that are still to be cleared away included.
func (w *Wheel[T]) lowest() (when uint64, ok bool) {
	if w.behind.len() > 0 {
		return w.behind.first().when, true
	}
	return w.ahead()
}

// ahead returns a lower bound of the deadlines from the cursor on.
func (w *Wheel[T]) ahead() (when uint64, ok bool) {
	when, ok = w.earliest()
	if w.run.len() > 0 && (!ok || w.run.first().when < when) {
		return w.run.first().when, true
	}
	return when, ok
}

// earliest returns a lower bound of the deadlines in the levels, exact unless
// timers were cancelled or postponed.
func (w *Wheel[T]) earliest() (when uint64, ok bool) {
	if w.levels == 0 {
		return 0, false
	}
	return w.path[bits.TrailingZeros8(w.levels)].earliest(), true
}
