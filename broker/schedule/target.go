package schedule

import (
	"fmt"
	"math"
	"strings"

	"github.com/carillonmq/carillon/storage"
)

// A state says how the messages of one target topic come to the publisher, and with it
// what tells how far the target has been read (targets.reach):
//
//	              reach     leaves it by
//	flowing       frontier  stop:    the publisher has enough of it          -> full
//	full          mark      queue:   it has room again                       -> queued
//	queued        mark      join:    the sweep comes to its mark             -> catchingUp
//	                        flow:    its mark is not before the frontier     -> flowing
//	catchingUp    swept     stop:    the publisher has enough of it          -> full
//	                        flow:    the sweep has come to the frontier      -> flowing
//	parked        mark      heal:    the publisher says that it may be fed,
//	                                 and it is not paused                    -> healed
//	healed        mark      feed:    no claim on its way may hold it, and none
//	                                 does, or it is released step by step    -> queued
//	any of them             park:    the publisher says that it is parked,
//	                                 or it is paused                         -> parked
//
//	flowing --stop--> full --queue--> queued --join--> catchingUp
//	   ^               ^               |  ^             |     |
//	   |               `---- stop -----+--+-------------'     |
//	   `-------------- flow -----------'--+-------------------'
//	                                   release
//	any --park--> parked --heal--> healed-'
type state uint8

const (
	// flowing: what is due is handed over as the wheel yields it.
	flowing state = iota
	// catchingUp: the sweep reads on for it, and for all others that catch up.
	catchingUp
	// full: more is due than the publisher takes at a time.
	full
	// queued: it has room, and a sweep takes it along from its mark on.
	queued
	// parked: the publisher says that it cannot be written to (target.ill), or a user has paused it
	// (target.paused). Its messages wait in storage from the mark on.
	parked
	// healed: it was parked and may be fed, as soon as it is known what the claim says of it.
	healed

	states = iota // how many there are
)

// A need says how soon a queued target is to be read for.
type need uint8

const (
	canWait need = iota // the publisher has enough of it until others join
	returns             // it was parked: who comes back at about the same time is read for together
	hungry              // the publisher has too little of it to wait for anybody

	needs = iota // how many there are
)

// endOfSchedule is after every message.
var endOfSchedule = storage.Ref{Due: math.MaxInt64, Seq: math.MaxUint64}

// A target is a target topic of which the scheduler knows anything: one that has
// messages in the window, or does not flow. Any other is forgotten, since names are
// free text and there may be any number of them.
type target struct {
	name string
	// mark is where reading goes on for a target that has one of its own (hasOwnMark).
	mark    storage.Ref
	feeding *feeding // nil: nothing of it is out or to be read, as of most of a hundred thousand that are parked

	// What the window has of the target.
	kept   int32 // messages, handed over or not
	handed int32 // of these, what the publisher has or gets, or whose Ack is not applied

	place [places]int32 // in the lists that it is in, counted from 1
	index uint32        // in targets.byIndex; used again when the target is forgotten

	state  state
	need   need // queued: how soon it is to be read for
	ill    bool // parked, since the publisher says so
	paused bool // parked, since a user says so
	// What the claim says of the target. Only one that is parked, healed or released is in a claim.
	held    bool // by the committed claim
	pending bool // a claim is on its way that sets or lifts its hold
	behind  bool // something waits before the mark of its hold, which must be set again
	// unsure: a user paused it while the claim was on its way that lifts its hold. Whether the log holds it
	// depends on the order of the two, and of the resume. It is held anew before it is fed.
	unsure bool
	// through is how far the target is claimed while it is held, or will be by the claim that is on its
	// way: nothing of it that is due later was sent. It never falls while the target is held.
	through int64
}

// A feeding is what is known of a target only while the publisher has something of it, or while it is read for.
type feeding struct {
	end     storage.Ref   // see target.end
	out     []storage.Ref // what was handed over, and some that is gone
	round   uint64        // queued: of the sweep that takes it along
	release *release      // nil: it is not released step by step
	pace    pace          // of its Acks
}

// fed returns the feeding of a target that has one from now on.
func (t *target) fed() *feeding {
	if t.feeding == nil {
		t.feeding = &feeding{end: endOfSchedule}
	}
	return t.feeding
}

// end is where reading for the target ends, unless it flows: from there to the frontier all of it is kept. It
// is endOfSchedule when it has been parked since it flowed, for then nothing is kept.
func (t *target) end() storage.Ref {
	if t.feeding == nil {
		return endOfSchedule
	}
	return t.feeding.end
}

// release is nil unless the target is released step by step.
func (t *target) release() *release {
	if t.feeding == nil {
		return nil
	}
	return t.feeding.release
}

// hasOwnMark reports whether the target's reach is its mark. Any target that is not
// known, nil, flows.
func (t *target) hasOwnMark() bool { return t != nil && t.state >= full }

// isLoaded reports whether what is read ahead of the clock is kept for the target, and so is what is accepted before the
// frontier: it flows, or has not been parked since it did. One that is not known, nil, flows.
func (t *target) isLoaded() bool { return t == nil || t.state == flowing || t.end() != endOfSchedule }

// targets is all that the scheduler knows of targets. It obeys one rule:
//
//	what is alive, not kept and not withheld lies at or after the reach of its target,
//	and before the end of what is read for it, or at or after the frontier
//
// A message is kept while it is in the window, handed over or not, and withheld while its delay
// topic is (topics). The rule has three
// parts, each checked where it could be broken. A check that fails ends the term
// (Scheduler.pass), and the next one builds all of this from storage, where nothing is lost.
//
//  1. Only reading moves a reach on: the frontier and the sweep, past what was
//     taken in (loaded, sweepTo). No change of state does (change).
//  2. What is accepted or let go of with a ref below the reach, and not kept, is covered
//     again: its target's mark goes back to it (lower, cover), or frontier and sweep do
//     (retreat). So is what is not withheld any more (stray, strayAll). What lies after the
//     end has that go on past it (leave), or the frontier go back.
//  3. What a claim holds, or may hold, is not fed: it is parked, healed or released (change).
//
// Nothing that happens in each pass costs more the more targets are parked: each is in
// the list of those in its state, and in two more if something is to be done about it.
type targets struct {
	frontier storage.Ref // all that flow were read up to here
	swept    storage.Ref // all that catch up were read up to here
	round    uint64      // of the sweep
	broken   error       // the first check that failed
	stepwise bool        // held targets are released step by step
	needing  [needs]int  // how many queued targets return, and are hungry

	byName  map[string]*target
	byIndex []*target // nil: free
	free    []uint32
	in      [states]list // by state; the queued ones by round and mark
	// uncovered are those with a mark of their own that no hold of the committed claim
	// covers, lowest first: the claim's main mark must not pass it.
	uncovered list
	changed   list // what the committed claim does not say of them as it should
}

func newTargets(from storage.Ref) targets {
	anyOrder := func(a, b *target) bool { return false }
	byMark := func(a, b *target) bool { return a.mark.Less(b.mark) }
	ts := targets{
		frontier:  from,
		byName:    make(map[string]*target),
		uncovered: list{place: placeUncovered, before: byMark},
		changed:   list{place: placeChanged, before: anyOrder},
	}
	for i := range ts.in {
		ts.in[i] = list{place: placeState, before: anyOrder}
	}
	ts.in[catchingUp].before = func(a, b *target) bool { return a.end().Less(b.end()) }
	ts.in[queued].before = func(a, b *target) bool {
		return a.feeding.round < b.feeding.round || a.feeding.round == b.feeding.round && byMark(a, b)
	}
	return ts
}

// reach returns how far the target has been read.
func (ts *targets) reach(t *target) storage.Ref {
	switch {
	case t == nil || t.state == flowing:
		return ts.frontier
	case t.state == catchingUp:
		return ts.swept
	}
	return t.mark
}

// isToBeKept reports whether what is alive of the target there, and not withheld, must be kept.
func (ts *targets) isToBeKept(t *target, ref storage.Ref) bool {
	return ref.Less(ts.reach(t)) || t.isLoaded() && t != nil && t.state != flowing && !ref.Less(t.end()) && ref.Less(ts.frontier)
}

// get returns the target of that name, which flows if nothing was known of it.
func (ts *targets) get(name string) *target {
	t, ok := ts.byName[name]
	if ok {
		return t
	}
	name = strings.Clone(name) // it may be a part of all the names of a page
	t = &target{name: name}
	if n := len(ts.free); n > 0 {
		t.index = ts.free[n-1]
		ts.free = ts.free[:n-1]
		ts.byIndex[t.index] = t
	} else {
		t.index = uint32(len(ts.byIndex))
		ts.byIndex = append(ts.byIndex, t)
	}
	ts.byName[name] = t
	ts.in[flowing].put(t)
	return t
}

// forget lets go of a target of which there is nothing to know. What the wheel still
// has of it are seqs that the window does not keep, so its index can be used again.
func (ts *targets) forget(t *target) {
	if t.state != flowing || t.kept > 0 || t.held || t.pending {
		return
	}
	ts.in[flowing].remove(t)
	delete(ts.byName, t.name)
	ts.byIndex[t.index] = nil
	ts.free = append(ts.free, t.index)
}

// Reading. Only loaded and retreat move the frontier, and only sweepTo, retreat and beginSweep
// the sweep.

// loaded moves the frontier on: all up to next that flows was taken into the window.
func (ts *targets) loaded(next storage.Ref) {
	ts.expect(!next.Less(ts.frontier), "loading went back to", nil, next)
	ts.frontier = next
}

// sweepTo moves the sweep on: all before next of those that catch up was taken in.
func (ts *targets) sweepTo(next storage.Ref) {
	ts.expect(!next.Less(ts.swept), "the sweep went back to", nil, next)
	ts.swept = next
}

// retreat moves the frontier back to ref, and the sweep: what lies after it is not kept
// any more. Neither ever goes on, since what lies between was not read yet.
func (ts *targets) retreat(ref storage.Ref) {
	ts.frontier = ts.frontier.Min(ref)
	ts.swept = ts.swept.Min(ref)
}

// beginSweep starts a sweep at the first of the queued targets. No target may be catching up: the
// sweep is the reach of those that are.
func (ts *targets) beginSweep(first *target) {
	ts.expect(len(ts.in[catchingUp].targets) == 0, "a sweep is abandoned for", first, first.mark)
	ts.round, ts.swept = first.feeding.round, first.mark
}

// Marks. lower and stray move a mark back, stop and park set one; no change of state moves a reach on.

// lower has a target with a mark of its own read again from a message that is not kept.
// Its hold need not be set again. What was accepted lately lowers the hold's mark in Apply as
// well (storage.Claim.Fresh), and what the target had when it was parked is covered (park).
func (ts *targets) lower(t *target, ref storage.Ref) {
	if ref.Less(t.mark) {
		ts.change(t, t.state, ref)
	}
}

// lowerAll does so for all targets with a mark of their own. They are many at times, and
// the feed seldom loses anything.
//
// While something is withheld, holds are set again from there. Their marks may have passed what is
// withheld, and whoever brings that back would take the lowered marks for the holds'.
func (ts *targets) lowerAll(ref storage.Ref, withheld bool) {
	for _, t := range ts.byName {
		if t.hasOwnMark() && ref.Less(t.mark) {
			t.behind = t.behind || withheld
			ts.lower(t, ref)
		}
	}
}

// cover is called for a message that the scheduler lets go of: it will be read again.
func (ts *targets) cover(t *target, ref storage.Ref) {
	if t.hasOwnMark() {
		ts.lower(t, ref)
	}
	ts.leave(t, ref)
	ts.expect(!ts.isToBeKept(t, ref), "nobody will read again what was let go of at", t, ref)
}

// leave notes that a message lies in storage alone, after the reach of its target: reading does not end before it.
func (ts *targets) leave(t *target, ref storage.Ref) {
	if t.state == flowing || ref.Less(t.end()) {
		return
	}
	t.fed().end = storage.Ref{Due: ref.Due, Seq: ref.Seq + 1}
	if t.state == catchingUp {
		ts.in[catchingUp].put(t) // it stands by its end there
	}
}

// stray has a target read again from a message that the claim does not know of.
func (ts *targets) stray(t *target, ref storage.Ref) {
	t.behind = t.behind || t.held || t.hasOwnMark()
	if t.hasOwnMark() {
		ts.lower(t, ref)
	} else {
		ts.stop(t, ref)
	}
	t.fed().end = endOfSchedule // there may be more of that kind
}

// strayAll does so for all targets with a mark of their own.
func (ts *targets) strayAll(ref storage.Ref) {
	for _, t := range ts.byIndex {
		switch {
		case t.hasOwnMark() && ref.Less(t.mark):
			ts.stray(t, ref)
		case t != nil && t.release() != nil && ref.Less(t.release().mark): // it is read again by the sweep, but a new term goes by its hold
			t.behind = true
			ts.compareHold(t)
		}
	}
}

// stop has a target wait until the publisher has less of it. The message at ref is the
// first that it does not get.
func (ts *targets) stop(t *target, ref storage.Ref) {
	if t.state == flowing {
		t.fed().end = storage.Ref{}
	}
	ts.change(t, full, ref)
	ts.leave(t, ref)
}

// queue has the next sweep that comes to its mark take the target along.
func (ts *targets) queue(t *target) { ts.change(t, queued, t.mark) }

// pressing returns how many queued targets are hungry, or came back.
func (ts *targets) pressing() int { return ts.needing[hungry] + ts.needing[returns] }

// setNeed says how soon a queued target is to be read for.
func (ts *targets) setNeed(t *target, n need) {
	ts.needing[t.need]--
	ts.needing[n]++
	t.need = n
}

// join has the sweep, which has come to its mark, read for the target.
func (ts *targets) join(t *target) { ts.change(t, catchingUp, t.mark) }

// flow has the target read by the frontier: all of it was read to there, or to where it is kept.
func (ts *targets) flow(t *target) { ts.change(t, flowing, storage.Ref{}) }

// park has everything from low on wait in storage. The mark covers what is kept of the
// target as well: it may come back, and a new term begins to read at the mark that the
// claim has.
func (ts *targets) park(t *target, low storage.Ref, through int64) {
	t.through = through
	covered := ts.reach(t)
	if r := t.release(); r != nil {
		covered = r.mark // it was fed beside its hold, which has stayed where it was
		t.feeding.release = nil
	}
	t.behind = t.behind || low.Less(covered)
	ts.change(t, parked, low)
	if f := t.feeding; f != nil {
		f.end = endOfSchedule // what the window has of it is dropped when it is ripe
	}
}

// heal has a parked target fed again, as soon as that may be.
func (ts *targets) heal(t *target) {
	ts.change(t, healed, t.mark)
	ts.feed(t)
}

// feed has a healed target fed again, unless a claim is on its way that may hold it. One that the
// committed claim holds is fed as far as the hold goes, or must wait until that is lifted.
func (ts *targets) feed(t *target) {
	if t.state != healed || t.pending || t.unsure || t.held && !ts.stepwise {
		return
	}
	if t.held {
		t.fed().release = &release{through: t.through, mark: t.mark}
	}
	ts.queue(t)
	ts.setNeed(t, returns)
}

// change is the one place where state and mark change; inherit sets them when a term begins.
func (ts *targets) change(t *target, to state, mark storage.Ref) {
	before := ts.reach(t)
	ts.in[t.state].remove(t)
	ts.setNeed(t, canWait)
	t.state, t.mark = to, mark
	if to == queued {
		// This sweep takes it along, unless it is past the mark: then the next one.
		t.fed().round = ts.round
		if mark.Less(ts.swept) {
			t.feeding.round++
		}
	}
	ts.in[to].put(t)
	ts.compareHold(t)
	ts.expect(!before.Less(ts.reach(t)) || to == flowing && !before.Less(t.end()), "a change of state moves a reach on from", t, before)
	ts.expect(to >= parked || !t.held && !t.pending || t.release() != nil, "a claim may hold what is fed from", t, mark)
	ts.forget(t)
}

// lowest returns a ref that is at or before everything that no hold covers and that
// a target with a mark of its own, or one that catches up, waits for.
func (ts *targets) lowest() storage.Ref {
	low := endOfSchedule
	if len(ts.uncovered.targets) > 0 {
		low = ts.uncovered.targets[0].mark
	}
	if len(ts.in[catchingUp].targets) > 0 {
		low = low.Min(ts.swept)
	}
	return low
}

// expect notes that a rule is broken, unless one was before.
func (ts *targets) expect(holds bool, broken string, t *target, at storage.Ref) {
	if !holds && ts.broken == nil {
		name := "any target"
		if t != nil {
			name = fmt.Sprintf("target %q in state %d", t.name, t.state)
		}
		ts.broken = fmt.Errorf("%s %v (%s; frontier %v, sweep %v)", broken, at, name, ts.frontier, ts.swept)
	}
}
