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
	f := raisedFSM(t)
	apply(t, f, OpenIDs{})
	return f
}

// raisedFSM returns one of level three whose ids are not open yet.
func raisedFSM(t *testing.T) *FSM {
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

// What a delay topic and its target hold becomes claimed when both let it go, whichever of them is resumed
// first, and whatever else is claimed in between. What was claimed before stays so.
func TestPause_ofBothClaimsNothingUntilBothAreResumed(t *testing.T) {
	topic, target := pause.Pause{Kind: pause.Topic, Name: "a.delay"}, pause.Pause{Kind: pause.Target, Name: "orders"}
	for _, order := range [][2]pause.Pause{{target, topic}, {topic, target}} {
		for _, first := range order {
			t.Run(fmt.Sprintf("%s paused, %s resumed first", order[0].Kind, first.Kind), func(t *testing.T) {
				f := pauseFSM(t)
				at := int64(0)
				take := func(through int64, o ...Operation) []Answer {
					t.Helper()
					for i := range o {
						o[i].Entry.Topic, o[i].Entry.Target = "a.delay", "orders"
					}
					at += int64(len(o))
					return apply(t, f, Ingest{ClaimThrough: through, Parts: []Part{{TopicID: topicID, Topic: "a.delay", From: at - int64(len(o)), Next: at, Operations: o}}}).Answers[0]
				}
				cancel := func(id string) Code {
					t.Helper()
					return take(0, Operation{Verb: Cancel, Entry: storage.Entry{ID: id}})[0].Code
				}
				take(0, scheduleOf("claimed", 90), scheduleOf("between", 190), scheduleOf("later", 300), scheduleOf("stays", 195))
				apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 100}})
				apply(t, f, Pause{Kind: order[0].Kind, Name: order[0].Name})
				apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 200}}) // others are delivered
				apply(t, f, Pause{Kind: order[1].Kind, Name: order[1].Name})
				take(250, scheduleOf("new", 90))
				apply(t, f, Resume{Kind: first.Kind, Name: first.Name})
				release := storage.ClaimChange{Through: 250, Lift: []string{"orders"}}
				if first.Kind == pause.Topic {
					release = storage.ClaimChange{Through: 250, LiftTopics: []string{"a.delay"}}
				}
				apply(t, f, ChangeClaim{ClaimChange: release})
				for id, want := range map[string]Code{"claimed": TooLate, "between": WasCancelled, "new": WasCancelled, "later": WasCancelled} {
					if got := cancel(id); got != want {
						t.Errorf("cancelling %q is answered %v, want %v", id, got, want)
					}
				}
				last := order[0]
				if last == first {
					last = order[1]
				}
				apply(t, f, Resume{Kind: last.Kind, Name: last.Name})
				release = storage.ClaimChange{Through: 250, Lift: []string{"orders"}, LiftTopics: []string{"a.delay"}}
				apply(t, f, ChangeClaim{ClaimChange: release})
				if got := cancel("stays"); got != TooLate {
					t.Errorf("after both were resumed cancelling is answered %v", got)
				}
			})
		}
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

// releases reports whether all that holds the message lets it go, and nothing of that is paused.
func (n *naivePauses) releases(store *storage.Store, ref storage.Ref, of [2]string) bool {
	through := store.Claim().Through
	if hold, held := store.Hold(pause.Topic, of[0]); held {
		through = min(through, hold.Through)
	}
	if hold, held := store.Hold(pause.Target, of[1]); held {
		through = min(through, hold.Through)
	}
	return ref.Due <= through && !n.paused[[2]any{pause.Topic, of[0]}] && !n.paused[[2]any{pause.Target, of[1]}]
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

// letsGo returns how far a claim lets the target go, false if it does not name it.
func letsGo(change ChangeClaim, target string) (through int64, named bool) {
	for _, hold := range change.Set {
		if hold.Target == target {
			return hold.Through, true
		}
	}
	return math.MaxInt64, slices.Contains(change.Lift, target)
}

// Whatever is accepted, paused and resumed between the making up of a claim and its applying, and
// whatever holds it names: nothing alive lies before the mark that covers it, what is claimed stays
// claimed, and a message becomes so when all that holds it lets it go and nothing of that is paused;
// one whose target is held, when a claim lets that go.
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
			seen, late := now.clone(), make(map[storage.Ref]bool)
			var next [3]int64
			for range 500 {
				reached := make(map[[2]any]int64) // by what is paused
				for paused := range now.paused {
					hold, _ := f.store.Hold(paused[0].(pause.Kind), paused[1].(string))
					reached[paused] = hold.Through
				}
				claimed, held, through := make(map[storage.Ref]bool), now.targets, f.store.Claim().Through
				for ref, of := range now.alive {
					claimed[ref] = f.store.Claimed(ref, of[0], of[1])
				}
				var command Command
				switch random.IntN(8) {
				case 0, 1, 2:
					i := random.IntN(len(topics))
					entry := storage.Entry{Due: random.Int64N(50), Target: one(names), Body: []byte("x")}
					command = Ingest{ClaimThrough: random.Int64N(60), Parts: []Part{{TopicID: [16]byte{byte(i)}, Topic: topics[i], From: next[i], Next: next[i] + 1, Entries: []storage.Entry{entry}}}}
					res := apply(t, f, command)
					ref := storage.Ref{Due: entry.Due, Seq: res.FirstSeq}
					now.alive[ref] = [2]string{topics[i], entry.Target}
					late[ref] = now.paused[[2]any{pause.Topic, topics[i]}] || now.paused[[2]any{pause.Target, entry.Target}]
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
				change, _ := command.(ChangeClaim)
				for ref, of := range now.alive {
					got := f.store.Claimed(ref, of[0], of[1])
					want := claimed[ref] || now.releases(f.store, ref, of)
					if was, known := claimed[ref]; want && !was && now.targets[of[1]] {
						// Its target is held: a claim that names that lets it go, or the claim comes to its time, or it was
						// taken in now or during a pause that is over.
						switch let, named := letsGo(change, of[1]); {
						case named && ref.Due <= let:
						case known && held[of[1]] && ref.Due <= through && !late[ref]:
							want = false
						default:
							want = got
						}
					}
					if got != want {
						t.Fatalf("that %v, which came by %s for %s, is claimed is %v, before %v, by %T %+v; paused %v", ref, of[0], of[1], got, claimed[ref], command, command, now.paused)
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

// What was accepted between the raise to level three and the opening of ids is claimed by what the
// scheduler is told of it, which goes by the entry, as by what its id is found with: else it would be
// answered to be on its way, and wait.
func TestPause_meansTheSameToLookUpsAndTheScheduler(t *testing.T) {
	f := raisedFSM(t)
	feed := f.Subscribe(10)
	entries := []storage.Entry{{Due: 50, Target: "orders", Body: []byte("x")}}
	apply(t, f, Ingest{Parts: []Part{{TopicID: topicID, Topic: "a.delay", From: 0, Next: 1, Entries: entries}}})
	events, _, _ := feed.Take(nil)
	shown := events[0].Accepted[0]
	apply(t, f, OpenIDs{UpTo: shown.Seq, Named: []storage.Named{{Ref: shown.Ref, Target: "orders", Topic: "a.delay", ID: "one"}}})
	apply(t, f, Pause{Kind: pause.Topic, Name: "a.delay"})
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 90}})
	read, _, _, err := f.store.Scan(storage.Ref{}, storage.Ref{}, 10, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel := apply(t, f, Operate{Operations: []Operation{{Verb: Cancel, Entry: storage.Entry{Topic: "a.delay", ID: "one"}}}})
	for from, item := range map[string]storage.Item{"shown": shown, "read": read[0]} {
		isOut, isSaid := f.store.Claimed(item.Ref, item.Topic, item.Target), cancel.Answers[0][0].Code == TooLate
		if isOut != isSaid {
			t.Errorf("as it is %s the message is claimed: %v; that it is on its way was answered: %v", from, isOut, isSaid)
		}
	}
}

// compareClaimed compares what is claimed with the model, message by message, and by what each is held.
func (p *play) compareClaimed(store *storage.Store) {
	p.t.Helper()
	items, _, done, err := store.Scan(storage.Ref{}, storage.Ref{}, math.MaxInt, nil, nil)
	if err != nil || !done || len(items) != len(p.model.alive) {
		p.t.Fatalf("%d messages were read, all: %v, %v", len(items), done, err)
	}
	for _, item := range items {
		if want := p.model.alive[item.Seq].held; item.Topic != want {
			p.t.Fatalf("%+v is held by %q, want %q", item, item.Topic, want)
		}
	}
	for seq, n := range p.model.alive {
		if got, want := store.Claimed(n.Ref, n.held, n.Target), p.model.isClaimed(seq); got != want {
			p.t.Fatalf("that %+v is claimed is %v, want %v; paused %+v", n, got, want, store.Pauses())
		}
	}
}
