package raftfsm

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

func pauseFSM(t *testing.T) *FSM {
	f := newTestFSM(t)
	f.cfg.Understands = storage.LevelThree
	apply(t, f, RaiseLevel{Level: storage.LevelThree})
	knownPosition(t, f, 0)
	return f
}

func TestPause_saysWhetherItChangedAnything(t *testing.T) {
	f := pauseFSM(t)
	feed := f.Subscribe(10)
	for i, step := range []struct {
		command Command
		changed bool
		paused  bool
	}{
		{Resume{Kind: pause.Topic, Name: "a.delay"}, false, false},
		{Pause{Time: 7, Kind: pause.Topic, Name: "a.delay", Who: "ann", Why: "why"}, true, true},
		{Pause{Time: 8, Kind: pause.Topic, Name: "a.delay", Who: "bob"}, false, true},
		{Resume{Kind: pause.Target, Name: "a.delay"}, false, true},
		{Resume{Kind: pause.Topic, Name: "a.delay"}, true, false},
		{Pause{Time: 9, Kind: pause.Topic, Name: "a.delay", Who: "cyd"}, true, true},
	} {
		if got := apply(t, f, step.command).Changed; got != step.changed || f.store.Paused(pause.Topic, "a.delay") != step.paused {
			t.Errorf("step %d: changed %v, paused %v", i, got, f.store.Pauses())
		}
		if i == 2 && (f.store.Pauses()[0] != pause.Pause{Kind: pause.Topic, Name: "a.delay", Who: "ann", Why: "why", Since: 7}) {
			t.Errorf("paused twice: %+v", f.store.Pauses())
		}
	}
	events, _, _ := feed.Take(nil)
	last := events[len(events)-1].Held
	if len(last) != 1 || !last[0].Paused || !last[0].Held || last[0].Name != "a.delay" {
		t.Errorf("the feed shows %+v", last)
	}
}

// A claim that releases a topic may be on its way when that is paused again.
func TestPause_standsAgainstAClaimMadeUpBefore(t *testing.T) {
	f := pauseFSM(t)
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 10}})
	apply(t, f, Pause{Kind: pause.Topic, Name: "a.delay"})
	apply(t, f, Pause{Kind: pause.Target, Name: "orders"})
	feed := f.Subscribe(10)
	change := storage.ClaimChange{Through: 90, Set: []storage.Hold{{Target: "orders", Through: 80}}, Lift: []string{"orders"},
		Topics: []storage.TopicHold{{Topic: "a.delay", Through: 80}, {Topic: "never.delay", Through: 80}}, LiftTopics: []string{"a.delay"}}
	apply(t, f, ChangeClaim{ClaimChange: change})
	for _, of := range [][2]string{{"a.delay", "x"}, {"b.delay", "orders"}} {
		if got := f.store.Through(of[0], of[1]); got != 10 {
			t.Errorf("what came by %s for %s is claimed through %d while that is paused", of[0], of[1], got)
		}
	}
	events, _, _ := feed.Take(nil)
	if held := events[0].Held; len(held) != 3 || !held[0].Held || held[0].Through != 10 || held[1].Held {
		t.Errorf("the feed shows %+v", held)
	}
	apply(t, f, Resume{Kind: pause.Topic, Name: "a.delay"})
	change.LiftTopics = nil
	apply(t, f, ChangeClaim{ClaimChange: change})
	if got := f.store.Through("a.delay", "x"); got != 80 {
		t.Errorf("released as far as 80 it is claimed through %d", got)
	}
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 90, Topics: []storage.TopicHold{{Topic: "a.delay", Through: 70}}}})
	if got := f.store.Through("a.delay", "x"); got != 80 {
		t.Errorf("what was claimed through 80 is through %d now", got)
	}
}

// A claim of the oldest form names all holds. One that was on its way when the level was raised
// does not lift what is paused.
func TestPause_standsAgainstAClaimOfTheOldestForm(t *testing.T) {
	f := pauseFSM(t)
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 10, Set: []storage.Hold{{Target: "a"}, {Target: "b"}}}})
	apply(t, f, Pause{Kind: pause.Target, Name: "orders"})
	apply(t, f, ClaimCommand{Claim: storage.Claim{Through: 20, Holds: []storage.Hold{{Target: "b"}, {Target: "c"}}}})
	var names []string
	for _, hold := range f.store.Holds() {
		names = append(names, hold.Target)
	}
	if want := []string{"b", "c", "orders"}; !slices.Equal(names, want) {
		t.Errorf("%v are held, want %v", names, want)
	}
}

// A naivePauses knows what is alive, what is held and what is paused, by looking at every command.
type naivePauses struct {
	alive   map[storage.Ref][2]string // topic and target
	topics  map[string]bool           // held
	targets map[string]bool           // held
	paused  map[[2]any]bool           // by kind and name
}

func (n *naivePauses) clone() naivePauses {
	return naivePauses{maps.Clone(n.alive), maps.Clone(n.topics), maps.Clone(n.targets), maps.Clone(n.paused)}
}

// propose makes up a claim whose marks are as high as what it has seen permits. Where it lifts the hold
// of a topic it sets all other holds again: that of the topic has covered more than they.
func (n *naivePauses) propose(random *rand.Rand, names []string) storage.ClaimChange {
	change := storage.ClaimChange{Through: random.Int64N(100)}
	after := n.clone()
	for topic := range n.topics {
		switch random.IntN(4) {
		case 0:
			if !n.paused[[2]any{pause.Topic, topic}] {
				change.LiftTopics = append(change.LiftTopics, topic)
				delete(after.topics, topic)
			}
		case 1:
			change.Topics = append(change.Topics, storage.TopicHold{Topic: topic, Through: random.Int64N(100),
				Mark: n.lowest(func(of [2]string) bool { return of[0] == topic })})
		}
	}
	for _, name := range names {
		switch held := n.targets[name]; {
		case held && random.IntN(3) == 0:
			change.Lift = append(change.Lift, name)
			delete(after.targets, name)
		case random.IntN(4) == 0, held && len(change.LiftTopics) > 0:
			after.targets[name] = true
			change.Set = append(change.Set, storage.Hold{Target: name, Through: random.Int64N(100),
				Mark: n.lowest(func(of [2]string) bool { return of[1] == name && !after.topics[of[0]] })})
		}
	}
	change.Mark = n.lowest(func(of [2]string) bool { return !after.targets[of[1]] && !after.topics[of[0]] })
	return change
}

func (n *naivePauses) lowest(of func([2]string) bool) storage.Ref {
	low := storage.Ref{Due: math.MaxInt64}
	for ref, by := range n.alive {
		if of(by) {
			low = low.Min(ref)
		}
	}
	return low
}

// look takes over what the store says of holds and pauses.
func (n *naivePauses) look(store *storage.Store) {
	n.topics, n.targets, n.paused = map[string]bool{}, map[string]bool{}, map[[2]any]bool{}
	for _, hold := range store.TopicHolds() {
		n.topics[hold.Topic] = true
	}
	for _, hold := range store.Holds() {
		n.targets[hold.Target] = true
	}
	for _, p := range store.Pauses() {
		n.paused[[2]any{p.Kind, p.Name}] = true
	}
}

// check holds that a term which reads from the marks finds all that is alive.
func (n *naivePauses) check(t *testing.T, store *storage.Store, after Command) {
	t.Helper()
	for ref, of := range n.alive {
		mark, covers := store.Claim().Mark, "claim"
		if hold, held := store.Hold(pause.Target, of[1]); held {
			mark, covers = hold.Mark, "target"
		}
		if hold, held := store.Hold(pause.Topic, of[0]); held {
			mark, covers = hold.Mark, "topic"
		}
		if ref.Less(mark) {
			t.Fatalf("message %v of %q lies before the mark %v of its %s after %T %+v", ref, of, mark, covers, after, after)
		}
	}
	for paused := range n.paused {
		if _, held := store.Hold(paused[0].(pause.Kind), paused[1].(string)); !held {
			t.Fatalf("%v is paused and not held after %T %+v", paused, after, after)
		}
	}
}

// Whatever is accepted, paused and resumed between the making up of a claim and its applying, and
// whatever holds it names: nothing alive lies before the mark that covers it, what is claimed stays
// claimed, and what is paused is not claimed any further.
func TestPauses_passNothingAndClaimNothing(t *testing.T) {
	names, topics := []string{"a", "b", "c"}, []string{"a.delay", "b.delay", "c.delay"}
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			one := func(of []string) string { return of[random.IntN(len(of))] }
			f := pauseFSM(t)
			for i, topic := range topics {
				apply(t, f, SetPositions{Sets: []PositionSet{{Position: storage.Position{Topic: topic, TopicID: [16]byte{byte(i)}, Epoch: -1}, From: FromAbsent}}})
			}
			now := naivePauses{alive: make(map[storage.Ref][2]string)}
			now.look(f.store)
			seen := now.clone()
			var next [3]int64
			for range 500 {
				reached := make(map[[2]any]int64) // by what is paused
				for paused := range now.paused {
					hold, _ := f.store.Hold(paused[0].(pause.Kind), paused[1].(string))
					reached[paused] = hold.Through
				}
				through := make(map[[2]string]int64)
				for _, of := range now.alive {
					through[of] = f.store.Through(of[0], of[1])
				}
				var command Command
				switch random.IntN(8) {
				case 0, 1, 2:
					i := random.IntN(len(topics))
					entry := storage.Entry{Due: random.Int64N(50), Target: one(names), Body: []byte("x")}
					command = Ingest{ClaimThrough: random.Int64N(60), Parts: []Part{{TopicID: [16]byte{byte(i)}, Topic: topics[i], From: next[i], Next: next[i] + 1, Entries: []storage.Entry{entry}}}}
					res := apply(t, f, command)
					now.alive[storage.Ref{Due: entry.Due, Seq: res.FirstSeq}] = [2]string{topics[i], entry.Target}
					next[i]++
				case 3:
					for ref := range now.alive {
						command = Ack{Runs: killed(ref.Seq, ref.Seq)}
						apply(t, f, command)
						delete(now.alive, ref)
						break
					}
				case 4:
					command = Pause{Kind: pause.Topic, Name: one(topics)}
					if random.IntN(2) == 0 {
						command = Pause{Kind: pause.Target, Name: one(names)}
					}
					apply(t, f, command)
				case 5:
					command = Resume{Kind: pause.Topic, Name: one(topics)}
					if random.IntN(2) == 0 {
						command = Resume{Kind: pause.Target, Name: one(names)}
					}
					apply(t, f, command)
				case 6: // the proposer has seen what came up to here, and goes on later
					seen = now.clone()
				case 7:
					command = ChangeClaim{ClaimChange: seen.propose(random, names)}
					apply(t, f, command)
				}
				now.look(f.store)
				if _, claimed := command.(ChangeClaim); claimed {
					seen = now.clone()
				}
				now.check(t, f.store, command)
				for of, was := range through {
					if got := f.store.Through(of[0], of[1]); got < was {
						t.Fatalf("what came by %s for %s was claimed through %d, and now %d, by %T %+v", of[0], of[1], was, got, command, command)
					}
				}
				for paused, was := range reached {
					if hold, _ := f.store.Hold(paused[0].(pause.Kind), paused[1].(string)); hold.Through > was {
						t.Fatalf("%v, which is paused, was claimed through %d, and now %d, by %T %+v", paused, was, hold.Through, command, command)
					}
				}
			}
		})
	}
}
