package storage

import (
	"math"

	"github.com/carillonmq/carillon/storage/pause"
)

// What is claimed, and what a pause keeps from it.
//
// A message becomes claimed at the first moment at which it is due by the claim, by the hold of its
// topic and by that of its target, and neither is paused. From then on it stays so.
//
// The Through of holds alone does not tell that. While a topic T is paused its hold does not rise, but
// what it came to before was so for targets that were not held:
//
//	                 target X held                 X released
//	claim   --------|====================================|=======> of what T brought for X, this
//	                          T paused                             may have been let go up to where X
//	hold of T       ----------|==================================> was held, and no further
//
// nor is what is accepted meanwhile, and due before that, let go. So a pause has a bound besides
// (pause.Bound), in the command that pauses: what is accepted from then on is not claimed. And when
// a claim raises or lifts the hold of X while T is paused, or that of T while X is, a bound of
// the two keeps what they had come to. When T is resumed, its own bound goes, and those of it and
// targets that are not paused: what they held back is claimed there and then. Those with
// targets that are paused as well stay as far as they had come to.
//
// A target that is held since it has parked, and is not paused, has no bound: when the pause of a topic
// is over, what was held by both goes as far as the target's hold.

// Claimed reports whether a message that came by the delay topic for the target may be on its way, or may
// have arrived. It stays so.
func (s *Store) Claimed(ref Ref, topic, target string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.claimed(ref, topic, target)
}

func (v *values) claimed(ref Ref, topic, target string) bool {
	return ref.Due <= v.through(topic, target) && !v.bounds.Covers(topic, target).Stops(ref.Due, ref.Seq)
}

// through is how far what was there before any pause of the two is claimed.
func (v *values) through(topic, target string) int64 {
	through := min(v.claim.Through, v.bounds.Covers(topic, target).Through)
	if at, held := v.holds.get(target); held {
		through = min(through, at.through)
	}
	if at, held := v.topics.get(topic); held {
		through = min(through, at.through)
	}
	return through
}

// keepBackPaused bounds what a change of the claim would release of what is paused: of paused topics what
// goes to targets whose hold it raises or lifts, and of paused targets likewise. It is called before
// the change. What is raised costs a look at each hold of what is paused, and a look-up and a bound of the two
// if they would be claimed further. So the leader raises few at a time while much is paused.
func (v *values) keepBackPaused(c *ClaimChange) {
	topics, targets := v.pausedHolds(pause.Topic), v.pausedHolds(pause.Target)
	for _, hold := range c.Set {
		v.keepBackRaised(v.holds, hold.Target, hold.Through, topics)
	}
	for _, target := range c.Lift {
		v.keepBackRaised(v.holds, target, math.MaxInt64, topics)
	}
	for _, hold := range c.Topics {
		v.keepBackRaised(v.topics, hold.Topic, hold.Through, targets)
	}
	for _, topic := range c.LiftTopics {
		v.keepBackRaised(v.topics, topic, math.MaxInt64, targets)
	}
}

// A pausedHold is how far the hold of what is paused goes: no further than the claim.
type pausedHold struct {
	of      pause.Of
	through int64
}

func (v *values) pausedHolds(kind pause.Kind) (all []pausedHold) {
	held := v.holds
	if kind == pause.Topic {
		held = v.topics
	}
	for _, p := range v.pauses.Of(kind) {
		at, _ := held.get(p.Name)
		all = append(all, pausedHold{pause.That(kind, p.Name), at.through})
	}
	return all
}

// keepBackRaised bounds the pairs of what is raised, one of held, and what is paused of the other kind,
// where it is the hold of the first alone that has kept them from being claimed further.
func (v *values) keepBackRaised(held holds, name string, to int64, paused []pausedHold) {
	at, isHeld := held.get(name)
	if !isHeld || at.through >= to {
		return
	}
	for _, other := range paused {
		if other.through <= at.through {
			continue
		}
		pair := other.of.With(name)
		if v.bounds.Get(pair).Through > at.through {
			v.bounds.Lower(pair, pause.Bound{Through: at.through, Before: math.MaxUint64})
		}
	}
}

// pause is the replicated part of Store.Pause.
func (v *values) pause(p pause.Pause) {
	v.pauses = v.pauses.With(p)
	v.holdPaused(p.Kind, p.Name)
	v.bounds.Lower(pause.That(p.Kind, p.Name), pause.Bound{Through: math.MaxInt64, Before: v.nextSeq})
}

// resume is the replicated part of Store.Resume. What was accepted during the pause stays stopped where the
// other of its two is paused since later, by whose bound it is not. It costs as much as is paused of the
// other kind, and as there are bounds of the two together.
func (v *values) resume(kind pause.Kind, name string) {
	others := pause.Topic
	if kind == pause.Topic {
		others = pause.Target
	}
	before := v.bounds.Get(pause.That(kind, name)).Before
	for _, p := range v.pauses.Of(others) {
		if other := pause.That(others, p.Name); v.bounds.Get(other).Before > before {
			v.bounds.Lower(other.With(name), pause.Bound{Through: math.MaxInt64, Before: before})
		}
	}
	v.pauses = v.pauses.Without(kind, name)
	v.bounds.Drop(kind, name, func(of pause.Of) bool {
		return !v.pauses.Has(pause.Topic, of.Topic) && !v.pauses.Has(pause.Target, of.Target)
	})
}
