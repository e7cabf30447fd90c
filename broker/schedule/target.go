package schedule

import (
	"container/heap"
	"math"

	"github.com/carillonmq/carillon/storage"
)

// flow says how the messages of one target topic reach the publisher.
type flow uint8

const (
	// flowing: what is due is handed over as the wheel yields it.
	flowing flow = iota
	// riding: the sweep reads on for it, and for all others that ride.
	riding
	// waiting: more was due than the publisher takes at a time, or it was parked. A
	// sweep takes it along from its mark on, once it has room.
	waiting
	// parked: the target is stuck. Its messages wait in storage from the mark on.
	parked
	// healed: it was parked and works again. It waits for a claim that does not hold it.
	healed
)

// endOfSchedule is after every message.
var endOfSchedule = storage.Ref{Due: math.MaxInt64, Seq: math.MaxUint64}

// A target is a target topic of which the scheduler knows anything: one that has
// messages in the window, or does not flow, or is held by the claim. Any other is
// forgotten, since names are free text and there may be any number of them.
type target struct {
	name   string
	index  uint32 // its place in targets.byIndex; used again when it is forgotten
	flow   flow
	kept   int           // messages in the window, handed over or not
	handed int           // of these, what the publisher has, or whose Ack is not applied
	out    []storage.Ref // what was handed over, and some that is gone
	// mark: while it waits, is parked or healed, every message of it that is alive and not
	// kept is at or after the mark (Scheduler.reach).
	mark storage.Ref

	// through is how far the target was claimed when it was parked; its messages due
	// later can still be cancelled.
	through int64
	held    bool        // by the committed claim
	claimed storage.Ref // the mark of its hold as last proposed; Apply may have lowered it
	pending bool        // a claim is on its way that changes its hold

	round uint64   // of the sweep that takes it along next
	place [2]int32 // in the heaps that it is in, counted from 1
}

// hasOwnMark reports whether the target's reach is its mark.
func (t *target) hasOwnMark() bool { return t.flow >= waiting }

// targets is all that the scheduler knows of targets, sorted by what it has to look
// at: nothing that happens in each pass costs more the more of them are parked.
type targets struct {
	byName  map[string]*target
	byIndex []*target // nil: free
	free    []uint32

	riders map[*target]struct{}
	full   map[*target]struct{} // waiting, and the publisher has enough of it
	hungry targetHeap           // waiting, with room; by round and mark
	parked map[*target]struct{}
	// uncovered are those that no hold of the committed claim covers and that have a mark of
	// their own, lowest first: the claim's main mark must not pass it.
	uncovered targetHeap
	changed   map[*target]struct{} // the committed claim does not hold it as it should
	swept     storage.Ref          // all that ride were read up to here
	round     uint64               // of the sweep
}

func newTargets() targets {
	byMark := func(a, b *target) bool { return a.mark.Less(b.mark) }
	return targets{
		byName:    make(map[string]*target),
		riders:    make(map[*target]struct{}),
		full:      make(map[*target]struct{}),
		parked:    make(map[*target]struct{}),
		changed:   make(map[*target]struct{}),
		uncovered: targetHeap{id: 0, before: byMark},
		hungry: targetHeap{id: 1, before: func(a, b *target) bool {
			return a.round < b.round || a.round == b.round && byMark(a, b)
		}},
	}
}

// get returns the target of that name, which flows if nothing was known of it.
func (ts *targets) get(name string) *target {
	t, ok := ts.byName[name]
	if ok {
		return t
	}
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
	return t
}

// forget lets go of a target of which there is nothing to know. What the wheel still
// has of it are seqs that the window does not keep, so its index can be used again.
func (ts *targets) forget(t *target) {
	if t.flow != flowing || t.kept > 0 || t.held || t.pending {
		return
	}
	delete(ts.byName, t.name)
	ts.byIndex[t.index] = nil
	ts.free = append(ts.free, t.index)
}

// move changes how a target flows. The mark counts unless it flows or rides then.
func (ts *targets) move(t *target, to flow, mark storage.Ref) {
	switch t.flow {
	case riding:
		delete(ts.riders, t)
	case waiting:
		delete(ts.full, t)
		ts.hungry.remove(t)
	case parked:
		delete(ts.parked, t)
	}
	t.flow, t.mark = to, mark
	switch to {
	case riding:
		ts.riders[t] = struct{}{}
	case waiting:
		ts.full[t] = struct{}{}
	case parked:
		ts.parked[t] = struct{}{}
	}
	ts.compareHold(t)
	ts.forget(t)
}

// lower makes the mark of a target cover a message that is not kept.
func (ts *targets) lower(t *target, ref storage.Ref) {
	if !ref.Less(t.mark) {
		return
	}
	t.mark = ref
	if ts.uncovered.has(t) {
		ts.uncovered.put(t)
	}
	if ts.hungry.has(t) {
		ts.feed(t)
	}
}

// feed has the next sweep that comes to its mark take a waiting target along: this
// one, unless it has passed it.
func (ts *targets) feed(t *target) {
	delete(ts.full, t)
	t.round = ts.round
	if t.mark.Less(ts.swept) {
		t.round++
	}
	ts.hungry.put(t)
}

// compareHold compares what the committed claim says of a target with what it should
// say: it holds those that are parked, from their mark on or from before.
func (ts *targets) compareHold(t *target) {
	if t.hasOwnMark() && (t.flow != parked || !t.held) {
		ts.uncovered.put(t)
	} else {
		ts.uncovered.remove(t)
	}
	if (t.flow == parked) != t.held || t.held && t.mark.Less(t.claimed) {
		ts.changed[t] = struct{}{}
	} else {
		delete(ts.changed, t)
	}
}

// lowest returns a ref that is at or before everything that no hold covers and that
// a target with a mark of its own, or one that rides, waits for.
func (ts *targets) lowest() storage.Ref {
	low := endOfSchedule
	if len(ts.uncovered.targets) > 0 {
		low = ts.uncovered.targets[0].mark
	}
	if len(ts.riders) > 0 {
		low = least(low, ts.swept)
	}
	return low
}

// A targetHeap is a min-heap whose targets know their places (container/heap).
type targetHeap struct {
	targets []*target
	id      int // of the place
	before  func(a, b *target) bool
}

func (h *targetHeap) has(t *target) bool { return t.place[h.id] > 0 }

// put adds a target, or finds its new place.
func (h *targetHeap) put(t *target) {
	if h.has(t) {
		heap.Fix(h, int(t.place[h.id]-1))
	} else {
		heap.Push(h, t)
	}
}

func (h *targetHeap) remove(t *target) {
	if h.has(t) {
		heap.Remove(h, int(t.place[h.id]-1))
	}
}

func (h *targetHeap) Len() int           { return len(h.targets) }
func (h *targetHeap) Less(i, j int) bool { return h.before(h.targets[i], h.targets[j]) }
func (h *targetHeap) Swap(i, j int) {
	h.targets[i], h.targets[j] = h.targets[j], h.targets[i]
	h.targets[i].place[h.id], h.targets[j].place[h.id] = int32(i+1), int32(j+1)
}

func (h *targetHeap) Push(x any) {
	t := x.(*target)
	h.targets = append(h.targets, t)
	t.place[h.id] = int32(len(h.targets))
}

func (h *targetHeap) Pop() any {
	last := len(h.targets) - 1
	t := h.targets[last]
	h.targets[last] = nil
	h.targets = h.targets[:last]
	t.place[h.id] = 0
	return t
}

// A refHeap is a binary min-heap of refs in order of delivery (container/heap).
type refHeap []storage.Ref

func (h refHeap) Len() int           { return len(h) }
func (h refHeap) Less(i, j int) bool { return h[i].Compare(h[j]) < 0 }
func (h refHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *refHeap) Push(x any)        { *h = append(*h, x.(storage.Ref)) }
func (h *refHeap) Pop() any {
	last := len(*h) - 1
	ref := (*h)[last]
	*h = (*h)[:last]
	return ref
}
