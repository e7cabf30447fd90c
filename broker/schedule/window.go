package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/wheel"
	"github.com/carillonmq/carillon/wheel/timer"
)

// mostLoaded bounds the messages in the wheel, and with it the leader's memory:
// about 100 bytes each. Beyond it retreat empties the window of all that was not handed
// over, and load fills it again to half. Loading begins again below a quarter.
const mostLoaded = 1 << 16

// mostSmall is how many messages a window may keep the memory of that are gone, or eight times as many as it has.
const mostSmall = 1 << 10

// A ripeMessage is what the wheel carries: no pointers, so that the garbage
// collector has nothing to look at. The wheel may have a message that is gone, or one
// twice: what the window keeps decides.
type ripeMessage struct{ seq uint64 }

// A keptMessage says why a message is in a window.
type keptMessage struct {
	target uint32 // in targets.byIndex
	topic  uint32 // in topics.names
	handed bool   // the publisher has it, or has published it and the Ack is not applied
}

// A window is the part of the schedule that a term has in memory: every message
// before the frontier (targets.frontier) whose target flows and that is not withheld, what is due later of those
// that catch up and was read, and what is with the publisher. What it still has of others
// is dropped when it is ripe. It knows each by its seq, so that reading storage again never fires a
// message twice.
//
// What is due beyond the frontier is in storage only. The frontier moves on as the
// wheel empties and back when the wheel is too full, so memory is bounded in
// messages and not in minutes: ten million may be due in one second.
type window struct {
	queue   *timer.DelayQueue[ripeMessage]
	ripe    []wheel.Expired[ripeMessage] // out of the wheel, not yet claimed; in order of delivery
	kept    map[uint64]keptMessage       // by seq
	most    int                          // that kept has had since it was made: a map never gives memory back
	handed  int                          // how many of them are handed over (keptMessage.handed)
	out     outRefs                      // what was handed over, and some that is gone
	limits  Limits
	loading bool // between a quarter and half of what may be loaded, on the way up
}

func newWindow(cfg timer.QueueConfig, limits Limits) *window {
	return &window{
		queue:  timer.NewDelayQueue[ripeMessage](cfg),
		ripe:   make([]wheel.Expired[ripeMessage], 0, limits.Page),
		kept:   make(map[uint64]keptMessage),
		limits: limits,
	}
}

// add puts a message that waits into the window.
func (w *window) add(ref storage.Ref, m keptMessage) error {
	w.keep(ref.Seq, m)
	timed := wheel.Expired[ripeMessage]{When: uint64(ref.Due), Value: ripeMessage{seq: ref.Seq}}
	if n := len(w.ripe); n > 0 && compareRipe(timed, w.ripe[n-1]) < 0 {
		at, _ := slices.BinarySearchFunc(w.ripe, timed, compareRipe)
		w.ripe = slices.Insert(w.ripe, at, timed)
		return nil
	}
	if _, err := w.queue.Add(ref.Due, timed.Value); err != nil {
		return fmt.Errorf("add message %d due at %d to the wheel: %w", ref.Seq, ref.Due, err)
	}
	return nil
}

// ripen takes what is due by the clock out of the wheel, in order of delivery, and
// reports whether there may be more. The slice belongs to the window; take says how
// much of it was used.
//
// The wheel yields those of one millisecond in the order in which they were added, which is not that of delivery: what
// is loaded ahead may be added before what the sweep comes to. So all of a millisecond is taken out together.
func (w *window) ripen() (ripe []wheel.Expired[ripeMessage], more bool) {
	if len(w.ripe) > 0 {
		return w.ripe, true
	}
	w.ripe, more = w.queue.Pop(w.ripe[:0])
	for left := more && len(w.ripe) > 0; left; {
		last := int64(w.ripe[len(w.ripe)-1].When)
		w.ripe, left = w.queue.PopThrough(last, slices.Grow(w.ripe, max(len(w.ripe), w.limits.Page)))
	}
	slices.SortFunc(w.ripe, compareRipe)
	return w.ripe, more
}

func (w *window) take(n int) {
	w.ripe = slices.Delete(w.ripe, 0, n)
}

// hand notes that the publisher gets the message, and reports whether the window did
// not have it before.
func (w *window) hand(ref storage.Ref, m keptMessage) (added bool) {
	before := len(w.kept)
	m.handed = true
	w.keep(ref.Seq, m)
	w.handed++
	if w.out.len() > 2*w.handed+w.limits.Page {
		// The first of them is slow and keeps those behind it from being dropped.
		w.out.drop(w.isGone)
	}
	w.out.add(ref)
	return len(w.kept) > before
}

// drop forgets a message: it was delivered, or it waits in storage again.
func (w *window) drop(seq uint64) (keptMessage, bool) {
	m, ok := w.kept[seq]
	if m.handed {
		w.handed--
	}
	w.forget(seq)
	return m, ok
}

func (w *window) keep(seq uint64, m keptMessage) {
	w.kept[seq] = m
	w.most = max(w.most, len(w.kept))
}

func (w *window) forget(seq uint64) {
	delete(w.kept, seq)
	if w.most < 8*mostSmall || len(w.kept) > w.most/8 {
		return
	}
	few := make(map[uint64]keptMessage, len(w.kept))
	maps.Copy(few, w.kept)
	w.kept, w.most = few, len(few)
}

// empty takes everything that was not handed over out of the window.
func (w *window) empty(yield func(storage.Ref, keptMessage)) {
	for _, e := range w.ripe {
		w.leave(e, yield)
	}
	w.ripe = w.ripe[:0]
	for e := range w.queue.Drain() {
		w.leave(e, yield)
	}
}

func (w *window) leave(e wheel.Expired[ripeMessage], yield func(storage.Ref, keptMessage)) {
	if m, ok := w.kept[e.Value.seq]; ok && !m.handed {
		w.forget(e.Value.seq)
		yield(storage.Ref{Due: int64(e.When), Seq: e.Value.seq}, m)
	}
}

// next returns the earliest due time in the window, or one before it.
func (w *window) next() (due int64, ok bool) {
	if len(w.ripe) > 0 {
		return int64(w.ripe[0].When), true
	}
	return w.queue.Next()
}

// lowest returns a ref that is at or before everything that the window keeps, and not
// beyond the frontier.
func (w *window) lowest(frontier storage.Ref) storage.Ref {
	low := w.lowestAhead(frontier)
	return w.out.lowest(w.isGone).Min(low)
}

// isGone reports whether something that was handed over is acknowledged, or waits in storage again.
func (w *window) isGone(handed storage.Ref) bool { return !w.kept[handed.Seq].handed }

// lowestAhead returns a ref that is at or before everything not handed over, and not
// beyond the frontier.
func (w *window) lowestAhead(frontier storage.Ref) storage.Ref {
	if due, ok := w.next(); ok && due <= frontier.Due {
		return storage.Ref{Due: due}
	}
	return frontier
}

func (w *window) len() int { return w.queue.Len() + len(w.ripe) }

// wantsMore reports whether the next page should be read. Once the window is filled to half of
// what may be loaded, loading begins again only below a quarter.
func (w *window) wantsMore(allLoaded bool) bool {
	switch n := w.len(); {
	case allLoaded || n >= w.limits.Loaded/2:
		w.loading = false
	case n < w.limits.Loaded/4:
		w.loading = true
	}
	return w.loading
}

func compareRipe(a, b wheel.Expired[ripeMessage]) int {
	return cmp.Or(cmp.Compare(a.When, b.When), cmp.Compare(a.Value.seq, b.Value.seq))
}

// outRefs are the refs of what was handed over. Nearly all is handed over in order of delivery and waits in a
// queue, of which the first goes first. What is handed over behind a later one, because it was accepted
// late or for a target that catches up, lies in a heap.
type outRefs struct {
	inOrder []storage.Ref
	behind  refHeap
}

func (o *outRefs) len() int { return len(o.inOrder) + len(o.behind) }

func (o *outRefs) add(ref storage.Ref) {
	if n := len(o.inOrder); n > 0 && ref.Less(o.inOrder[n-1]) {
		o.behind.push(ref)
		return
	}
	o.inOrder = append(o.inOrder, ref)
}

// lowest returns the first that is not gone, or endOfSchedule.
func (o *outRefs) lowest(isGone func(storage.Ref) bool) storage.Ref {
	for len(o.inOrder) > 0 && isGone(o.inOrder[0]) {
		o.inOrder = o.inOrder[1:]
	}
	if len(o.inOrder) == 0 {
		o.inOrder = nil // there may have been a hundred thousand, and what is in front of a slice stays in memory with it
	}
	for len(o.behind) > 0 && isGone(o.behind[0]) {
		o.behind.pop()
	}
	low := endOfSchedule
	if len(o.inOrder) > 0 {
		low = o.inOrder[0]
	}
	if len(o.behind) > 0 {
		low = low.Min(o.behind[0])
	}
	return low
}

// drop lets go of all that is gone, and of their memory: there were many once.
func (o *outRefs) drop(isGone func(storage.Ref) bool) {
	o.inOrder = slices.Clone(slices.DeleteFunc(o.inOrder, isGone))
	o.behind = slices.Clone(slices.DeleteFunc(o.behind, isGone))
	for at := len(o.behind)/2 - 1; at >= 0; at-- {
		o.behind.sink(at)
	}
}

// A refHeap is a binary min-heap of refs in order of delivery. With container/heap each ref that goes in or out
// is an allocation.
type refHeap []storage.Ref

func (h *refHeap) push(ref storage.Ref) {
	*h = append(*h, ref)
	for at := len(*h) - 1; at > 0; {
		parent := (at - 1) / 2
		if !(*h)[at].Less((*h)[parent]) {
			return
		}
		(*h)[at], (*h)[parent] = (*h)[parent], (*h)[at]
		at = parent
	}
}

// pop takes the first out.
func (h *refHeap) pop() {
	last := len(*h) - 1
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	h.sink(0)
}

// sink moves the ref at that place down to its own.
func (h refHeap) sink(at int) {
	for {
		child := 2*at + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].Less(h[child]) {
			child++
		}
		if !h[child].Less(h[at]) {
			return
		}
		h[at], h[child] = h[child], h[at]
		at = child
	}
}
