package storage

import (
	"math"

	"github.com/carillonmq/carillon/storage/pause"
)

// What is claimed, and what a pause keeps from it.
//
// A message becomes claimed at the first moment at which it is due by the claim, by the hold of its
// topic and by that of its target, and neither is paused. While its target is held that moment is one at which
// a claim names the target: by the rise of its topic's hold alone, or a resume, nothing of a held target is
// claimed that is due after what such claims have let go. Once claimed it stays so.
//
// The Through of holds alone does not tell that. While a topic T is paused its hold does not rise, but
// what it came to before was so for targets that were not held:
//
//	                 target X held                 X released
//	claim   --------|====================================|=======> of what T brought for X, this
//	                          T paused                             may have been let go up to where X
//	hold of T       ----------|==================================> was held, and no further
//
// And what is accepted meanwhile, and due before that, is not let go. So a pause has a bound besides
// (pause.Bound), in the command that pauses: what is accepted from then on is not claimed. The other way round,
// the hold of T rises when T is resumed, while that of X, which cannot be written to, goes further:
//
//	                 T paused            T resumed, its hold rises
//	hold of T       |=====================|----------->
//	                          X parked                    claims let X go, step by step
//	hold of X       ----------|===========================|------>
//	of T for X      |=====================================|------> bounded to where T was paused
//
// So there are bounds of pairs: how far what came by T for X has come.
//
//	when                                                  the pair is bounded to
//	a claim raises or lifts the hold of X, T is paused    what it has come to
//	T is resumed, X is held; X is held, T's hold rises    what it has come to
//	a claim sets the hold of X again, T is not paused     what the claim lets go, as far as the hold of T is
//	a claim lifts the hold of X, T is not paused          nothing
//	T is resumed, X is not held                           nothing
//
// A bound that goes as far as the hold of X is left out: that tells it.

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

// mostPairs bounds how many bounds targets that are not paused may add: 100 bytes each, written whole with
// each flush. Beyond, what a topic that comes back releases is claimed as far as the target's hold.
const mostPairs = 1_000_000

// A pairing is a delay topic as a change of the claim finds it and leaves it. What is not held has a
// through that is after all.
type pairing struct {
	topic    string
	paused   bool
	was, now int64 // through of its hold
}

// pairings returns the topics of which what goes to one target may be claimed less far than what goes to others.
func (v *values) pairings() (all []pairing) {
	for hold := range v.topics.each {
		all = append(all, pairing{hold.Target, v.pauses.Has(pause.Topic, hold.Target), hold.Through, hold.Through})
	}
	for _, topic := range v.bounds.Topics() {
		if _, held := v.topics.get(topic); !held {
			all = append(all, pairing{topic, false, math.MaxInt64, math.MaxInt64})
		}
	}
	return all
}

// changeTopics is what a claim does to holds of topics.
func (v *values) changeTopics(c *ClaimChange, all []pairing) {
	for _, topic := range c.LiftTopics {
		v.topics.lift(topic)
	}
	for _, h := range c.Topics {
		v.topics.set(Hold{Target: h.Topic, Through: h.Through, Mark: h.Mark})
	}
	for i := range all {
		all[i].now = v.topics.through(all[i].topic)
	}
}

// liftHold is what a claim does to the hold of a target that it lifts.
func (v *values) liftHold(all []pairing, target string) {
	v.bind(all, target, math.MaxInt64, math.MaxInt64)
	v.holds.lift(target)
}

// setHold is what a claim does to the hold of a target that it names.
func (v *values) setHold(all []pairing, h Hold) {
	let := h.Through
	if v.level >= LevelThree {
		h.Through = max(h.Through, v.through("", h.Target))
	}
	v.bind(all, h.Target, h.Through, let)
	v.holds.set(h)
}

// bind sets the bounds of a target and those topics before its hold is set to through, which is after all
// where the hold is lifted. Due by let is what that lets go. Each topic costs a look at two numbers, and a
// look-up and a bound if the two have one or would be claimed further. So the leader raises few holds at a
// time (broker/schedule).
func (v *values) bind(all []pairing, target string, through, let int64) {
	if len(all) == 0 || v.pauses.Has(pause.Target, target) {
		return // what is paused stays as far as it is, and its bounds with it
	}
	was := v.holds.through(target)
	for _, of := range all {
		if of.paused && (of.was <= was || through <= was) {
			continue // it has come as far as the topic's hold, or further than this goes
		}
		pair := pause.Of{Topic: of.topic, Target: target}
		bound := v.bounds.Get(pair)
		come := min(was, of.was, bound.Through)
		switch {
		case of.paused:
			v.bounds.Set(pair, pause.Bound{Through: come, Before: bound.Before})
		case through == math.MaxInt64:
			v.bounds.Set(pair, pause.Unbound)
		default:
			v.keepBack(pair, bound, pause.Bound{Through: max(come, min(let, of.now)), Before: math.MaxUint64}, through)
		}
	}
}

// keepBack puts a bound in the place of the present one of a pair, unless that goes as far as the target's hold.
func (v *values) keepBack(pair pause.Of, now, to pause.Bound, through int64) {
	if to.Through >= through {
		to.Through = math.MaxInt64
	}
	if now != pause.Unbound || v.bounds.Len() < mostPairs || v.pauses.Has(pause.Target, pair.Target) {
		v.bounds.Set(pair, to)
	}
}

// pause is the replicated part of Store.Pause.
func (v *values) pause(p pause.Pause) {
	if _, held := v.holds.get(p.Name); p.Kind == pause.Target && !held {
		v.bind(v.pairings(), p.Name, v.claim.Through, math.MinInt64)
	}
	v.pauses = v.pauses.With(p)
	v.holdPaused(p.Kind, p.Name)
	v.bounds.Lower(pause.That(p.Kind, p.Name), pause.Bound{Through: math.MaxInt64, Before: v.nextSeq})
}

// resume is the replicated part of Store.Resume. What was accepted during the pause stays stopped where the
// other of its two is paused since later, by whose bound it is not.
func (v *values) resume(kind pause.Kind, name string) {
	others := pause.Topic
	if kind == pause.Topic {
		others = pause.Target
	}
	that := pause.That(kind, name)
	before := v.bounds.Get(that).Before
	for _, p := range v.pauses.Of(others) {
		if other := pause.That(others, p.Name); v.bounds.Get(other).Before > before {
			v.bounds.Lower(other.With(name), pause.Bound{Through: math.MaxInt64, Before: before})
		}
	}
	v.pauses = v.pauses.Without(kind, name)
	v.bounds.Set(that, pause.Unbound)
	if kind == pause.Topic {
		v.comeBack(name)
		return
	}
	for _, topic := range v.bounds.Topics() {
		if pair := (pause.Of{Topic: topic, Target: name}); !v.pauses.Has(pause.Topic, topic) {
			v.bounds.Set(pair, pause.Bound{Through: v.bounds.Get(pair).Through, Before: math.MaxUint64})
		}
	}
}

// comeBack bounds what came by a topic that is not paused any more to what it has come to, for each target that
// is held further: the topic's hold will rise, and theirs need not. It costs as much as targets are held.
func (v *values) comeBack(topic string) {
	for _, target := range v.bounds.Targets(topic) {
		if _, held := v.holds.get(target); !held {
			v.bounds.Set(pause.Of{Topic: topic, Target: target}, pause.Unbound)
		}
	}
	through := v.topics.through(topic)
	for hold := range v.holds.each {
		pair := pause.Of{Topic: topic, Target: hold.Target}
		bound := v.bounds.Get(pair)
		to := pause.Bound{Through: min(through, bound.Through), Before: bound.Before}
		if !v.pauses.Has(pause.Target, hold.Target) {
			to.Before = math.MaxUint64
		}
		if bound != pause.Unbound || to.Through < hold.Through {
			v.keepBack(pair, bound, to, hold.Through)
		}
	}
}
