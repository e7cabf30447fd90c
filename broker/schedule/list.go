package schedule

import "container/heap"

// A list holds targets that know their places in it. It is a min-heap (container/heap):
// where nothing comes before anything, everything costs the same however many there are.
type list struct {
	targets []*target
	place   int // which of a target's places
	before  func(a, b *target) bool
}

const (
	placeState = iota
	placeUncovered
	placeChanged
	places = iota
)

func (l *list) has(t *target) bool { return t.place[l.place] > 0 }

// set puts the target into the list, or finds its new place, or takes it out.
func (l *list) set(t *target, in bool) {
	if in {
		l.put(t)
	} else {
		l.remove(t)
	}
}

func (l *list) put(t *target) {
	if l.has(t) {
		heap.Fix(l, int(t.place[l.place]-1))
	} else {
		heap.Push(l, t)
	}
}

func (l *list) remove(t *target) {
	if l.has(t) {
		heap.Remove(l, int(t.place[l.place]-1))
	}
}

// Len, Less, Swap, Push and Pop are for container/heap.

func (l *list) Len() int           { return len(l.targets) }
func (l *list) Less(i, j int) bool { return l.before(l.targets[i], l.targets[j]) }
func (l *list) Swap(i, j int) {
	l.targets[i], l.targets[j] = l.targets[j], l.targets[i]
	l.targets[i].place[l.place], l.targets[j].place[l.place] = int32(i+1), int32(j+1)
}

func (l *list) Push(x any) {
	t := x.(*target)
	l.targets = append(l.targets, t)
	t.place[l.place] = int32(len(l.targets))
}

func (l *list) Pop() any {
	last := len(l.targets) - 1
	t := l.targets[last]
	l.targets[last] = nil
	l.targets = l.targets[:last]
	if c := cap(l.targets); c > 1024 && last < c/4 { // a burst of names is over
		l.targets = append(make([]*target, 0, c/2), l.targets...)
	}
	t.place[l.place] = 0
	return t
}
