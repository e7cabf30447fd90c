package raftfsm

import (
	"slices"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// What a pause promises: from its place in the log on, and until a Resume, nothing that it names
// becomes claimed. Pause sets the hold itself, at the claim of that moment, so there is no claim to wait
// for, and a bound for what that hold would let through: what is taken in later, and what another hold
// covered as well (storage/claimed.go).
//
// A Resume leaves the hold and takes the bound away. That of a topic bounds what came by it for targets that
// are held further, so that nothing of them is claimed as the topic's hold rises. The leader, which has not
// read what was held, releases it by claims: it raises Through of a topic's hold step by step, or lifts a hold. Such a claim may be on its way when
// the same is paused again:
//
//	Resume ... claim made up ... Pause ... the claim: neither raises nor lifts that hold
//
// The other way round, what was released before the Pause stays claimed.

func (f *FSM) pause(w *work, c Pause) {
	f.store.SetTime(c.Time)
	w.result.Changed = f.store.Pause(pause.Pause{Kind: c.Kind, Name: c.Name, Who: c.Who, Why: c.Why, Since: c.Time})
	w.event.Held = []Held{f.held(c.Kind, c.Name)}
	f.tellBounds(w)
}

func (f *FSM) resume(w *work, c Resume) {
	f.store.SetTime(c.Time)
	w.result.Changed = f.store.Resume(c.Kind, c.Name)
	w.event.Held = []Held{f.held(c.Kind, c.Name)}
	f.tellBounds(w)
}

// tellBounds shows the feed what bounds there are after the command, or that there are none any more.
func (f *FSM) tellBounds(w *work) {
	if w.isFed {
		bounds := f.store.PauseBounds()
		w.event.Bounds = &bounds
	}
}

// held says how it stands with what a user may pause.
func (f *FSM) held(kind pause.Kind, name string) Held {
	hold, held := f.store.Hold(kind, name)
	return Held{Kind: kind, Name: name, Paused: f.store.Paused(kind, name), Held: held, Through: hold.Through, Mark: hold.Mark}
}

// keepPaused takes out of a claim what it must not do to holds. None takes back what was claimed: of
// targets the store sees to that. The hold of a delay topic begins with a pause. What is paused stays
// held, as far as it is.
func (f *FSM) keepPaused(change storage.ClaimChange) storage.ClaimChange {
	if f.store.Level() < storage.LevelThree {
		return change
	}
	change.Set, change.Topics = slices.Clone(change.Set), slices.Clone(change.Topics)
	for i := range change.Set {
		if set := &change.Set[i]; f.store.Paused(pause.Target, set.Target) {
			set.Through = f.store.Through("", set.Target)
		}
	}
	for i := range change.Topics {
		set := &change.Topics[i]
		hold, _ := f.store.Hold(pause.Topic, set.Topic)
		if set.Through = max(set.Through, hold.Through); f.store.Paused(pause.Topic, set.Topic) {
			set.Through = hold.Through
		}
	}
	change.Topics = slices.DeleteFunc(change.Topics, func(set storage.TopicHold) bool {
		_, held := f.store.Hold(pause.Topic, set.Topic)
		return !held
	})
	change.LiftTopics = slices.DeleteFunc(slices.Clone(change.LiftTopics), func(topic string) bool { return f.store.Paused(pause.Topic, topic) })
	change.Lift = slices.DeleteFunc(slices.Clone(change.Lift), func(target string) bool {
		if !f.store.Paused(pause.Target, target) {
			return false
		}
		// The proposer has left all of the target to the mark of the claim, and with it what this very
		// claim no longer holds by its topic.
		hold, _ := f.store.Hold(pause.Target, target)
		hold.Mark = hold.Mark.Min(change.Mark)
		change.Set = append(change.Set, hold)
		return true
	})
	return change
}

// topicsOf says how it stands after a claim with the topics that it names.
func (f *FSM) topicsOf(change storage.ClaimChange) (all []Held) {
	for _, set := range change.Topics {
		all = append(all, f.held(pause.Topic, set.Topic))
	}
	for _, topic := range change.LiftTopics {
		all = append(all, f.held(pause.Topic, topic))
	}
	return all
}
