package timer

// lineKept is how many places an empty line keeps for the next crowd.
const lineKept = 4096

// line is where timers that are due wait for a worker, first come, first served. One that is
// stopped or moved leaves its place at once, so it takes nobody's room.
type line[K comparable, V any] struct {
	places  []*Timer[K, V] // nil where one has left
	head    int            // nobody stands before it
	waiting int
}

// enter gives t the last place.
func (l *line[K, V]) enter(t *Timer[K, V]) {
	if len(l.places) == cap(l.places) && l.waiting <= len(l.places)/2 {
		l.closeUp() // at most once per cap/2 entries
	}
	t.place, t.waiting = uint32(len(l.places)), true
	l.places = append(l.places, t)
	l.waiting++
}

// leave frees the place of t, which is in line.
func (l *line[K, V]) leave(t *Timer[K, V]) {
	l.places[t.place] = nil
	t.waiting = false
	l.waiting--
	if l.waiting == 0 {
		l.clear()
	}
}

// first returns the timer that waits longest, nil when none does.
func (l *line[K, V]) first() *Timer[K, V] {
	if l.waiting == 0 {
		return nil
	}
	for l.places[l.head] == nil {
		l.head++
	}
	return l.places[l.head]
}

// clear sends everybody away, but leaves their marks to the caller.
func (l *line[K, V]) clear() {
	clear(l.places)
	l.places, l.head, l.waiting = l.places[:0], 0, 0
	if cap(l.places) > lineKept {
		l.places = nil
	}
}

// closeUp moves everybody forward into the places that are free.
func (l *line[K, V]) closeUp() {
	closed := l.places[:0]
	for _, t := range l.places {
		if t != nil {
			t.place = uint32(len(closed))
			closed = append(closed, t)
		}
	}
	clear(l.places[len(closed):])
	l.places, l.head = closed, 0
}
