package schedule

import (
	"cmp"
	"math"
	"slices"

	"github.com/carillonmq/carillon/storage"
)

// Holds: what the claim says of targets.
//
//	             claim sets it               heal             claim lifts it
//	parked  --------------------> parked, held --> healed, held ------------> queued
//	uncovered                     covered          uncovered
//
// Uncovered, the main mark of the claim does not pass its mark.
//
// From storage.LevelThree on what is due after a hold's Through can still be cancelled, so a hold is
// not lifted while much waits. The target is released in steps: it is fed like any other, and what it
// would be handed that no claim covers yet waits in memory, ahead of it, until a claim has raised the
// hold to there. It gets as much as any target may have, MostHanded, so that is what one
// step claims at most, but for messages that are due in the same millisecond. When all has been read,
// the target flows, and a claim lifts the hold.
//
//	             hold's Through        read
//	-------------------|--------------------|---------------------> now
//	  handed over      |  ahead: kept,      |  in storage, to be
//	                   |  on its way there  |  cancelled
//	                   `-- next claim ----->'
//
// What came by a topic that was paused while the target was held may have come less far than the hold
// goes (storage/claimed.go). It waits ahead as well, and what is due after it with it, for a claim that lets go
// what is due by then.
//
//	        heal                read                    all was read       claim lifts it
//	parked ------> released, fed ----> full, queued, .. ------------> flowing ------> flowing
//	held           held: covered by the hold throughout                       uncovered
//
// Parked again at any moment, it keeps the hold as far as that was raised.

// A release is what a target has that is fed while a claim holds it.
type release struct {
	through int64 // of the hold, as committed: nothing that is due later is handed over, nor what a bound stops
	// ahead is what counts as handed over and waits for the claim, in order of delivery, and some
	// that is gone.
	ahead []storage.Ref
	mark  storage.Ref // that its hold was last given, or is by the claim on its way; nothing that it is to cover lies before
}

// isBehind reports whether something waits for a claim that is to go out before a message.
func (r *release) isBehind(ref storage.Ref) bool { return len(r.ahead) > 0 && r.ahead[0].Less(ref) }

// wait puts a message behind or between those that wait for a claim.
func (r *release) wait(ref storage.Ref) {
	at := len(r.ahead)
	if at > 0 && ref.Less(r.ahead[at-1]) {
		at, _ = slices.BinarySearchFunc(r.ahead, ref, storage.Ref.Compare)
	}
	r.ahead = slices.Insert(r.ahead, at, ref)
}

// take takes out what the hold covers now.
func (r *release) take() []storage.Ref {
	n, _ := slices.BinarySearchFunc(r.ahead, r.through, func(ref storage.Ref, through int64) int {
		return cmp.Or(cmp.Compare(ref.Due, through), -1) // after all of that time
	})
	covered := r.ahead[:n:n]
	r.ahead = r.ahead[n:]
	return covered
}

// wanted is how far the next claim is to raise the hold of a target.
func (t *target) wanted() int64 { return max(t.through, t.letGo()) }

// letGo is what the next claim is to let go of a target that it holds already: as far as what waits for
// it, nothing if nothing does. That may be less than the hold: of what came by a topic that was paused
// when the target was not, less is claimed (storage/claimed.go).
func (t *target) letGo() int64 {
	r := t.release()
	if r == nil || len(r.ahead) == 0 {
		return math.MinInt64
	}
	return r.ahead[len(r.ahead)-1].Due
}

// wantsClaim reports whether the next claim is to let something go of a target that it holds.
func (t *target) wantsClaim() bool { return t.letGo() > math.MinInt64 }

// isToBeHeld reports whether the claim should hold the target: it is parked, or is released and has
// not been read to the frontier, or it is not known whether the claim does.
func (t *target) isToBeHeld() bool {
	return t.state == parked || t.unsure || t.release() != nil && t.state != flowing
}

// mayBeHeld reports whether the committed claim holds the target as far as through, or may do so.
func (t *target) mayBeHeld() bool { return t.held || t.unsure }

// inherit takes over a target that the claim of an earlier term holds: all of it that
// is alive lies at or after the hold's mark.
func (ts *targets) inherit(hold storage.Hold) *target {
	t := ts.get(hold.Target)
	ts.in[t.state].remove(t)
	t.state, t.mark, t.through, t.held = parked, hold.Mark, hold.Through, true
	ts.in[t.state].put(t)
	return t
}

// compareHold compares what the committed claim says of a target with what it should
// say: it holds those that are to be held, from their mark on or from before, and as far as is wanted.
func (ts *targets) compareHold(t *target) {
	toBeHeld := t.isToBeHeld()
	ts.uncovered.set(t, t.hasOwnMark() && !(toBeHeld && t.held))
	ts.changed.set(t, toBeHeld != t.held || t.held && (t.behind || t.wantsClaim()))
}

// A sentHold is what a proposed claim makes of a target's hold.
type sentHold struct {
	target  *target
	held    bool
	through int64 // if it is held
}

// hold is what the claim is to say of a target that is held. The mark of one that is released goes on, so
// that a new term need not read again what was delivered. It is low at most, the claim's own
// mark, before which nothing lies that the window has, or that a claim no longer holds by its topic.
func (ts *targets) hold(t *target, low storage.Ref) storage.Hold {
	mark, through := t.mark, t.through
	if r := t.release(); r != nil {
		mark = ts.reach(t).Min(low)
		r.mark = mark
	}
	if t.mayBeHeld() && ts.stepwise {
		through = t.letGo()
	}
	return storage.Hold{Target: t.name, Through: through, Mark: mark}
}

// sent notes that a claim is on its way with what it should say of the target.
func (ts *targets) sent(t *target) sentHold {
	t.through = t.wanted()
	t.pending, t.behind = true, false
	return sentHold{t, t.isToBeHeld(), t.through}
}

// committed notes that the claim that was on its way is in the log, and returns what
// that releases. No one else changes holds during a term but who pauses: the log then holds what the claim
// lifts, or not (target.unsure).
func (ts *targets) committed(hold sentHold) (released []storage.Ref) {
	t := hold.target
	t.held, t.pending, t.unsure = hold.held, false, t.unsure && !hold.held
	if r := t.release(); r != nil {
		if r.through = hold.through; !t.held {
			r.through, t.feeding.release = math.MaxInt64, nil
		}
		released = r.take()
	}
	ts.compareHold(t)
	ts.feed(t)
	return released
}
