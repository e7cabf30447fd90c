package broker

import (
	"math"

	"github.com/carillonmq/carillon/storage"
)

// flow says how the messages of one target topic reach the publisher.
type flow uint8

const (
	// flowing: what is due is handed over as the wheel yields it.
	flowing flow = iota
	// catchingUp: more was due than the publisher takes at a time, or the target was
	// parked. What is due is read from storage, page by page, from the mark on.
	catchingUp
	// parked: the target is stuck. Its messages wait in storage from the mark on.
	parked
)

// mostHanded is how many messages of one target the publisher may hold, as
// references: enough to keep it busy while the next page is read.
const mostHanded = 8192

// endOfSchedule is after every message.
var endOfSchedule = storage.Ref{Due: math.MaxInt64, Seq: math.MaxUint64}

// A target is a target topic as the scheduler sees it during a term.
type target struct {
	name   string
	index  uint32 // its place in scheduler.targets, as the wheel carries it
	flow   flow
	handed int // messages that the publisher holds or whose Ack is not applied yet
	// mark: unless flowing, every message of the target that waits and is not held
	// is at or after it.
	mark storage.Ref
	// through is how far the target was claimed when it was parked; its messages due
	// later can still be cancelled.
	through int64
	// healed: a probe of the parked target succeeded. It is fed again as soon as a
	// committed claim has let its hold go.
	healed bool
}

// wait makes the mark cover a message that is not held.
func (t *target) wait(ref storage.Ref) {
	if ref.Compare(t.mark) < 0 {
		t.mark = ref
	}
}

// stop ends the flow: from now on what is not held waits from ref on.
func (t *target) stop(how flow, ref storage.Ref) {
	if t.flow == flowing {
		t.mark = ref
	}
	t.flow = how
	t.wait(ref)
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
