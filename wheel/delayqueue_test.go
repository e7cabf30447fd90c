package wheel

import "container/heap"

// delayQueue is the usual priority queue, to compare with.
type delayQueue []*delayed

type delayed struct {
	when  uint64
	value uint64
	index int
}

func (q delayQueue) Len() int           { return len(q) }
func (q delayQueue) Less(i, j int) bool { return q[i].when < q[j].when }
func (q delayQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index = i
	q[j].index = j
}
func (q *delayQueue) Push(x any) {
	d := x.(*delayed)
	d.index = len(*q)
	*q = append(*q, d)
}
func (q *delayQueue) Pop() any {
	last := len(*q) - 1
	d := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return d
}

func (q *delayQueue) add(when, v uint64) *delayed {
	d := &delayed{when: when, value: v}
	heap.Push(q, d)
	return d
}

func (q *delayQueue) cancel(d *delayed) { heap.Remove(q, d.index) }
func (q *delayQueue) pop() *delayed     { return heap.Pop(q).(*delayed) }
