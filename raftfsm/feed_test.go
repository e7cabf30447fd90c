package raftfsm

import (
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func item(due int64, seq uint64) storage.Item {
	return storage.Item{Ref: storage.Ref{Due: due, Seq: seq}, Target: "t", Size: 1}
}

func killed(first, last uint64) []storage.SeqRun { return []storage.SeqRun{{First: first, Last: last}} }

func TestFeed_givesEventsInTheOrderOfTheLog(t *testing.T) {
	f := newFeed(10, nil)
	put := []Event{
		{Index: 1, Accepted: []storage.Item{item(5, 1), item(4, 2)}},
		{Index: 2, Killed: killed(1, 1)},
		{Index: 3, Claim: &storage.Claim{Through: 9}},
	}
	for _, e := range put {
		f.put(e)
	}
	<-f.Ready()
	got, _, lost := f.Take(nil)
	if diff := cmp.Diff(put, got); diff != "" || lost {
		t.Errorf("lost %v, (-put +taken):\n%s", lost, diff)
	}
	if again, _, _ := f.Take(nil); len(again) != 0 {
		t.Errorf("taken twice: %v", again)
	}
}

func TestFeed_remembersTheLowestItemItDrops(t *testing.T) {
	f := newFeed(1, nil)
	f.put(Event{Index: 1, Accepted: []storage.Item{item(5, 1)}})
	f.put(Event{Index: 2, Accepted: []storage.Item{item(9, 2), item(7, 3)}, Killed: killed(1, 1)})
	f.put(Event{Index: 3, Accepted: []storage.Item{item(8, 4)}, Claim: &storage.Claim{Through: 1}})
	f.put(Event{Index: 4, Claim: &storage.Claim{Through: 2}})
	events, low, lost := f.Take(nil)
	if !lost || low != (storage.Ref{Due: 7, Seq: 3}) {
		t.Errorf("lowest lost %v %v, want {7 3}", low, lost)
	}
	var accepted int
	var runs []storage.SeqRun
	var claim *storage.Claim
	for _, e := range events {
		accepted += len(e.Accepted)
		runs = append(runs, e.Killed...)
		if e.Claim != nil {
			claim = e.Claim
		}
	}
	if accepted != 1 || len(runs) != 1 || claim == nil || claim.Through != 2 {
		t.Errorf("accepted %d, killed %v, claim %v: want 1, the one run, Through 2", accepted, runs, claim)
	}
	f.put(Event{Index: 5, Accepted: []storage.Item{item(1, 5)}})
	if events, _, lost := f.Take(nil); lost || len(events) != 1 {
		t.Errorf("after it was emptied: %v, lost %v", events, lost)
	}
}

// What is paused and resumed is never lost, and comes in its order.
func TestFeed_keepsPausesWhenItIsFull(t *testing.T) {
	f := newFeed(1, nil)
	var want []Held
	for i := range uint64(10) {
		held := Held{Name: "orders", Paused: i%2 == 0, Through: int64(i)}
		want = append(want, held)
		f.put(Event{Index: i + 1, Accepted: []storage.Item{item(1, i+1)}, Held: []Held{held}})
	}
	var got []Held
	events, _, _ := f.Take(nil)
	for _, e := range events {
		got = append(got, e.Held...)
	}
	if len(events) > 2 || !slices.Equal(got, want) {
		t.Errorf("%d events show %+v, want %+v", len(events), got, want)
	}
}

// Whatever is put and whenever it is taken: order is kept, every kill and the
// last claim come through, every item comes or lies at or above the lost one.
func TestFeed_losesOnlyItemsAndSaysWhich(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(0, 8).Draw(t, "capacity")
		f := newFeed(capacity, nil)
		var index, seq, killedTo uint64
		var waiting []storage.Ref
		var lastClaim int64
		take := func() {
			events, low, lost := f.Take(nil)
			got := map[storage.Ref]bool{}
			at, end := uint64(0), killedTo
			for _, e := range events {
				if e.Index <= at {
					t.Fatalf("index %d after %d", e.Index, at)
				}
				at = e.Index
				for _, it := range e.Accepted {
					got[it.Ref] = true
				}
				for _, r := range e.Killed {
					if r.First != end+1 {
						t.Fatalf("killed from %d after %d", r.First, end)
					}
					end = r.Last
				}
				if e.Claim != nil {
					lastClaim = -e.Claim.Through
				}
			}
			killedTo = end
			for _, ref := range waiting {
				if !got[ref] && (!lost || ref.Less(low)) {
					t.Fatalf("%v is gone, lost says %v %v", ref, low, lost)
				}
			}
			if len(got) > capacity {
				t.Fatalf("%d items kept, capacity %d", len(got), capacity)
			}
			waiting = nil
		}
		var kills, claims uint64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			index++
			e := Event{Index: index}
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				take()
				continue
			case 1:
				for range rapid.IntRange(1, 4).Draw(t, "items") {
					seq++
					it := item(rapid.Int64Range(0, 20).Draw(t, "due"), seq)
					e.Accepted = append(e.Accepted, it)
					waiting = append(waiting, it.Ref)
				}
			case 2:
				kills++
				e.Killed = killed(kills, kills)
			case 3:
				claims++
				e.Claim = &storage.Claim{Through: -int64(claims)}
			}
			f.put(e)
		}
		take()
		if killedTo != kills || lastClaim != int64(claims) {
			t.Fatalf("killed to %d of %d, claim %d of %d", killedTo, kills, lastClaim, claims)
		}
	})
}
