package raftfsm

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/carillonmq/carillon/storage"
)

// A naiveSchedule knows what is alive, and which targets are held, by looking at every command.
type naiveSchedule struct {
	alive map[storage.Ref]string // target
	held  map[string]bool
}

// propose makes up a claim whose marks are as high as what is alive here permits:
// the proposer has seen no more.
func (n *naiveSchedule) propose(random *rand.Rand, names []string, changes bool) storage.ClaimChange {
	change := storage.ClaimChange{Through: random.Int64N(100)}
	held := maps.Clone(n.held)
	if !changes {
		clear(held) // it names all that are held from now on
	}
	for _, name := range names {
		switch set := random.IntN(4) == 0; {
		case set:
			held[name] = true
			change.Set = append(change.Set, storage.Hold{Target: name, Mark: n.lowest(func(target string) bool { return target == name })})
		case held[name] && random.IntN(3) == 0:
			delete(held, name)
			change.Lift = append(change.Lift, name)
		}
	}
	change.Mark = n.lowest(func(target string) bool { return !held[target] })
	return change
}

func (n *naiveSchedule) lowest(of func(target string) bool) storage.Ref {
	low := storage.Ref{Due: math.MaxInt64}
	for ref, target := range n.alive {
		if of(target) {
			low = low.Min(ref)
		}
	}
	return low
}

// check holds that a term which reads from the marks finds all that is alive.
func (n *naiveSchedule) check(t *testing.T, store *storage.Store, after Command) {
	t.Helper()
	marks := make(map[string]storage.Ref)
	for _, hold := range store.Holds() {
		marks[hold.Target] = hold.Mark
	}
	if len(marks) != len(n.held) {
		t.Fatalf("%d targets are held, want %d", len(marks), len(n.held))
	}
	for ref, target := range n.alive {
		mark, held := marks[target]
		if held != n.held[target] {
			t.Fatalf("%q is held: %v, want %v", target, held, n.held[target])
		}
		if !held {
			mark = store.Claim().Mark
		}
		if ref.Less(mark) {
			t.Fatalf("message %v of %q (held: %v) lies before the mark %v after %T %+v", ref, target, held, mark, after, after)
		}
	}
}

// Whatever is accepted and killed between the making up of a claim and its applying,
// and whichever holds it names: nothing alive lies before the mark that covers it.
func TestClaims_neverPassWhatIsAlive(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			f := newTestFSM(t)
			knownPosition(t, f, 0)
			now := naiveSchedule{alive: make(map[storage.Ref]string), held: make(map[string]bool)}
			next := int64(0)
			seen, changes := now, false
			for range 400 {
				var command Command
				switch random.IntN(6) {
				case 0, 1, 2:
					entry := storage.Entry{Due: random.Int64N(50), Target: names[random.IntN(len(names))], Body: []byte("x")}
					command = Ingest{Parts: []Part{{TopicID: topicID, Topic: "a.delay", From: next, Next: next + 1, Entries: []storage.Entry{entry}}}}
					res := apply(t, f, command)
					now.alive[storage.Ref{Due: entry.Due, Seq: res.FirstSeq}] = entry.Target
					next++
				case 3:
					for ref := range now.alive {
						command = Ack{Runs: killed(ref.Seq, ref.Seq)}
						apply(t, f, command)
						delete(now.alive, ref)
						break
					}
				case 4: // the proposer has seen what came up to here, and goes on later
					seen = naiveSchedule{alive: maps.Clone(now.alive), held: now.held}
				case 5:
					changes = changes || random.IntN(40) == 0 // the feature level was raised
					command = claimOf(seen.propose(random, names, changes), &now, changes)
					apply(t, f, command)
					seen = naiveSchedule{alive: maps.Clone(now.alive), held: now.held}
				}
				now.check(t, f.store, command)
			}
		})
	}
}

// claimOf returns the command for a change, in the form of either level, and notes
// what it makes of the holds.
func claimOf(change storage.ClaimChange, n *naiveSchedule, changes bool) Command {
	n.held = maps.Clone(n.held)
	if !changes {
		clear(n.held)
	}
	for _, hold := range change.Set {
		n.held[hold.Target] = true
	}
	for _, name := range change.Lift {
		delete(n.held, name)
	}
	if changes {
		return ChangeClaim{ClaimChange: change}
	}
	return ClaimCommand{Claim: storage.Claim{Through: change.Through, Mark: change.Mark, Holds: change.Set}}
}
