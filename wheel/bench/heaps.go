package main

import (
	"container/heap"
	"sync"
	"time"
)

// node is a timer in a heap, allocated one by one as is usual.
type node struct {
	due   int64
	value int
	index int // in the heap, -1 when out
}

type nodes []*node

func (h nodes) Len() int           { return len(h) }
func (h nodes) Less(i, j int) bool { return h[i].due < h[j].due }
func (h nodes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *nodes) Push(x any) {
	n := x.(*node)
	n.index = len(*h)
	*h = append(*h, n)
}

func (h *nodes) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	n.index = -1
	return n
}

// heapStepper is container/heap with the index that cancelling needs.
type heapStepper struct {
	heap    nodes
	handles []*node
	fired   func(int)
}

func newHeap(n int, fired func(int)) contender {
	return &heapStepper{handles: make([]*node, n), fired: fired}
}

func (h *heapStepper) add(i int, delay time.Duration) {
	n := &node{due: delay.Milliseconds(), value: i}
	heap.Push(&h.heap, n)
	h.handles[i] = n
}

func (h *heapStepper) cancel(i int) {
	if n := h.handles[i]; n.index >= 0 {
		heap.Remove(&h.heap, n.index)
	}
}

func (h *heapStepper) replace(order []int32, delays []time.Duration) {
	for k, i := range order {
		heap.Remove(&h.heap, h.handles[i].index)
		n := &node{due: delays[k].Milliseconds(), value: int(i)}
		heap.Push(&h.heap, n)
		h.handles[i] = n
	}
}

func (h *heapStepper) move(i int, delay time.Duration) {
	if n := h.handles[i]; n.index >= 0 {
		n.due = delay.Milliseconds()
		heap.Fix(&h.heap, n.index)
	}
}

func (h *heapStepper) next() (uint64, bool) {
	if len(h.heap) == 0 {
		return 0, false
	}
	return uint64(h.heap[0].due), true
}

func (h *heapStepper) advance(now uint64) (fired int, more bool) {
	for ; len(h.heap) > 0 && h.heap[0].due <= int64(now); fired++ {
		if fired == batch {
			return fired, true
		}
		h.fired(heap.Pop(&h.heap).(*node).value)
	}
	return fired, false
}

func (h *heapStepper) fireAll(bool) {
	for len(h.heap) > 0 {
		h.fired(heap.Pop(&h.heap).(*node).value)
	}
}

func (h *heapStepper) tidy(uint64) bool { return false }
func (h *heapStepper) start()           {}
func (h *heapStepper) stop()            {}

// heapQueue is the usual delay queue: a heap, a mutex, and one goroutine that sleeps until the
// first deadline and is woken for an earlier one.
type heapQueue struct {
	mu      sync.Mutex
	heap    nodes
	handles []*node
	fired   func(int)
	base    time.Time
	wake    chan struct{}
	quit    chan struct{}
}

func newHeapQueue(n int, fired func(int)) contender {
	q := &heapQueue{
		handles: make([]*node, n), fired: fired, base: time.Now(),
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	go q.run()
	return q
}

func (q *heapQueue) add(i int, delay time.Duration) {
	n := &node{due: int64(time.Since(q.base) + delay), value: i}
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.heap, n)
	q.handles[i] = n
	q.look(n)
}

func (q *heapQueue) cancel(i int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.handles[i]; n.index >= 0 {
		heap.Remove(&q.heap, n.index)
	}
}

func (q *heapQueue) replace(order []int32, delays []time.Duration) { replaceAll(q, order, delays) }

func (q *heapQueue) move(i int, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.handles[i]; n.index >= 0 {
		n.due = int64(time.Since(q.base) + delay)
		heap.Fix(&q.heap, n.index)
		q.look(n)
	}
}

func (q *heapQueue) look(n *node) {
	if n.index == 0 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// pop returns the first timer if it is due, else how long to sleep.
func (q *heapQueue) pop() (n *node, sleep time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap) == 0 {
		return nil, time.Hour
	}
	if wait := q.heap[0].due - int64(time.Since(q.base)); wait > 0 {
		return nil, time.Duration(wait)
	}
	return heap.Pop(&q.heap).(*node), 0
}

func (q *heapQueue) run() {
	sleeper := time.NewTimer(time.Hour)
	for {
		n, sleep := q.pop()
		if n != nil {
			q.fired(n.value)
			continue
		}
		sleeper.Reset(sleep)
		select {
		case <-sleeper.C:
		case <-q.wake:
		case <-q.quit:
			return
		}
	}
}

func (q *heapQueue) start() {}
func (q *heapQueue) stop()  { close(q.quit) }
