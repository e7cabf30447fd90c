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

// keepBack bounds what came by the topic for the target to what it has come to.
func (v *values) keepBack(topic, target string, through int64) {
	before := v.bounds.Covers(topic, target).Before
	v.bounds.Lower(pause.Of{Topic: topic, Target: target}, pause.Bound{Through: through, Before: before})
}

// A reached is how far messages that came by the topic for the target are claimed.
type reached struct {
	topic, target string
	through       int64
}

// reachedPaused returns how far is claimed what is paused and the change may release: of paused
// topics what goes to targets whose hold it raises or lifts, and of paused targets likewise.
func (v *values) reachedPaused(c *ClaimChange) (all []reached) {
	if len(v.pauses.All()) == 0 {
		return nil
	}
	topics, targets := v.pauses.Of(pause.Topic), v.pauses.Of(pause.Target)
	raise := func(held holds, name string, through int64, each func(name string)) {
		if at, isHeld := held.get(name); isHeld && at.through < through {
			each(name)
		}
	}
	ofTarget := func(target string) {
		for _, topic := range topics {
			all = append(all, reached{topic.Name, target, v.through(topic.Name, target)})
		}
	}
	ofTopic := func(topic string) {
		for _, target := range targets {
			all = append(all, reached{topic, target.Name, v.through(topic, target.Name)})
		}
	}
	for _, hold := range c.Set {
		raise(v.holds, hold.Target, hold.Through, ofTarget)
	}
	for _, target := range c.Lift {
		raise(v.holds, target, math.MaxInt64, ofTarget)
	}
	for _, hold := range c.Topics {
		raise(v.topics, hold.Topic, hold.Through, ofTopic)
	}
	for _, topic := range c.LiftTopics {
		raise(v.topics, topic, math.MaxInt64, ofTopic)
	}
	return all
}

// keepBackAll bounds what would be claimed further than it was.
func (v *values) keepBackAll(all []reached) {
	for _, was := range all {
		if v.through(was.topic, was.target) > was.through {
			v.keepBack(was.topic, was.target, was.through)
		}
	}
}

// pause is the replicated part of Store.Pause.
func (v *values) pause(p pause.Pause) {
	v.pauses = v.pauses.With(p)
	v.holdPaused(p.Kind, p.Name)
	v.bounds.Lower(pause.That(p.Kind, p.Name), pause.Bound{Through: math.MaxInt64, Before: v.nextSeq})
}

// resume is the replicated part of Store.Resume. It costs as much as is paused of the other kind, and
// as there are bounds of the two together.
func (v *values) resume(kind pause.Kind, name string) {
	others := pause.Topic
	if kind == pause.Topic {
		others = pause.Target
	}
	for _, p := range v.pauses.Of(others) {
		topic, target := p.Name, name
		if kind == pause.Topic {
			topic, target = name, p.Name
		}
		v.keepBack(topic, target, v.through(topic, target))
	}
	v.pauses = v.pauses.Without(kind, name)
	v.bounds.Drop(kind, name, func(of pause.Of) bool {
		return !v.pauses.Has(pause.Topic, of.Topic) && !v.pauses.Has(pause.Target, of.Target)
	})
}
