package timer

import (
	"container/heap"

	"github.com/carillonmq/carillon/wheel"
)

// lateTimer is a timer whose deadline lies behind the wheel's cursor.
type lateTimer[T any] struct {
	due    uint64 // ms
	serial uint64 // order of adding, and the timer's name in its Handle
	index  int    // in lateHeap
	value  T
}

// lateHeap orders by (due, serial). It implements heap.Interface.
type lateHeap[T any] []*lateTimer[T]

func (h lateHeap[T]) Len() int { return len(h) }

func (h lateHeap[T]) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].serial < h[j].serial
}

func (h lateHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *lateHeap[T]) Push(x any) {
	t := x.(*lateTimer[T])
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *lateHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}

// lateTimers holds what the wheel cannot: deadlines behind its cursor. A wheel would move them up
// to the cursor, which loses their order and, once the clock has been set back, fires them too
// late. There are few (already due, gone with the next Pop) unless the clock has gone back, so
// O(log n) and an allocation each are fine.
type lateTimers[T any] struct {
	heap     lateHeap[T]
	bySerial map[uint64]*lateTimer[T]
}

func (l *lateTimers[T]) add(due, serial uint64, v T) {
	if l.bySerial == nil {
		l.bySerial = make(map[uint64]*lateTimer[T])
	}
	t := &lateTimer[T]{due: due, serial: serial, value: v}
	l.bySerial[serial] = t
	heap.Push(&l.heap, t)
}

func (l *lateTimers[T]) cancel(serial uint64) (v T, ok bool) {
	t, ok := l.bySerial[serial]
	if !ok {
		return v, false
	}
	delete(l.bySerial, serial)
	heap.Remove(&l.heap, t.index)
	return t.value, true
}

func (l *lateTimers[T]) next() (due uint64, ok bool) {
	if len(l.heap) == 0 {
		return 0, false
	}
	return l.heap[0].due, true
}

// pop appends what is due at now, in order, until out's capacity is used up.
func (l *lateTimers[T]) pop(now uint64, out []wheel.Expired[T]) []wheel.Expired[T] {
	for len(out) < cap(out) && len(l.heap) > 0 && l.heap[0].due <= now {
		t := heap.Pop(&l.heap).(*lateTimer[T])
		delete(l.bySerial, t.serial)
		out = append(out, wheel.Expired[T]{When: t.due, Value: t.value})
	}
	return out
}
