package wheel

import (
	"cmp"
	"slices"
)

// A failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A model is a wheel next to the simplest thing that does the same: a set of
// timers, sorted when needed.
type model struct {
	failer
	wheel   *Wheel[int]
	pending []*modelTimer // in order of adding
	stale   []Handle
	added   int
	now     uint64
}

type modelTimer struct {
	value  int
	when   uint64
	handle Handle
	moved  bool // has no particular place within its tick
}

func newModel(t failer, cursor uint64) *model {
	return &model{failer: t, wheel: New[int](cursor), now: cursor}
}

func (m *model) add(when uint64) {
	m.Helper()
	h, err := m.wheel.Add(when, m.added)
	if when > MaxTick {
		if err == nil {
			m.Fatalf("Add(%d) accepted a deadline beyond MaxTick", when)
		}
		return
	}
	if err != nil {
		m.Fatalf("Add(%d): %v", when, err)
	}
	m.pending = append(m.pending, &modelTimer{value: m.added, when: when, handle: h})
	m.added++
}

// cancel cancels the i-th pending timer, counted round.
func (m *model) cancel(i int) {
	m.Helper()
	if len(m.pending) == 0 {
		return
	}
	i %= len(m.pending)
	t := m.pending[i]
	if e, ok := m.wheel.Get(t.handle); !ok || e.Value != t.value || e.When != t.when {
		m.Fatalf("Get of timer %d at %d = %+v, %v", t.value, t.when, e, ok)
	}
	if !m.wheel.Cancel(t.handle) {
		m.Fatalf("Cancel of timer %d at %d = false", t.value, t.when)
	}
	m.pending = slices.Delete(m.pending, i, i+1)
	m.stale = append(m.stale, t.handle)
}

// move moves the i-th pending timer, counted round.
func (m *model) move(i int, when uint64) {
	m.Helper()
	if len(m.pending) == 0 {
		return
	}
	t := m.pending[i%len(m.pending)]
	h, ok := m.wheel.Move(t.handle, when)
	if ok != (when <= MaxTick) {
		m.Fatalf("Move of timer %d from %d to %d = %v", t.value, t.when, when, ok)
	}
	if !ok {
		return
	}
	if h != t.handle {
		m.stale = append(m.stale, t.handle)
	}
	t.moved = t.moved || when != t.when
	t.when, t.handle = when, h
}

// advance calls Advance once, with room for n timers, and reports more.
func (m *model) advance(now uint64, n int) bool {
	m.Helper()
	m.now = now
	due, more := m.wheel.Advance(now, make([]Expired[int], 0, n))
	if n > 0 && len(due) > n {
		m.Fatalf("Advance(%d) returned %d timers into room for %d", now, len(due), n)
	}
	m.expect(now, due, more)
	return more
}

// finish advances until nothing is left at tick now.
func (m *model) finish(now uint64, n int) {
	m.Helper()
	calls := 0
	for m.advance(now, n) {
		if calls++; calls > 1e5 {
			m.Fatalf("Advance(%d) still says more after %d calls", now, calls)
		}
	}
}

// expect compares a batch with the model's, and takes it out of the model.
func (m *model) expect(now uint64, due []Expired[int], more bool) {
	m.Helper()
	want := slices.Clone(m.pending)
	want = slices.DeleteFunc(want, func(t *modelTimer) bool { return t.when > now })
	slices.SortStableFunc(want, func(a, b *modelTimer) int { return cmp.Compare(a.when, b.when) })
	if len(due) > len(want) || len(due) < len(want) && !more {
		m.Fatalf("Advance(%d) returned %d timers (more %v), %d are due", now, len(due), more, len(want))
	}
	byValue := make(map[int]*modelTimer, len(want))
	var order []int // of those never moved
	for _, t := range want {
		byValue[t.value] = t
		if !t.moved {
			order = append(order, t.value)
		}
	}
	for i, d := range due {
		t := byValue[d.Value]
		if t == nil || t.when != d.When || d.When != want[i].when {
			m.Fatalf("Advance(%d) item %d is timer %d for %d, want one for %d", now, i, d.Value, d.When, want[i].when)
		}
		delete(byValue, d.Value)
		m.stale = append(m.stale, t.handle)
		if t.moved {
			continue
		}
		if d.Value != order[0] {
			m.Fatalf("Advance(%d) item %d for %d is timer %d, want %d, which was added before", now, i, d.When, d.Value, order[0])
		}
		order = order[1:]
	}
	fired := make(map[int]bool, len(due))
	for _, d := range due {
		fired[d.Value] = true
	}
	m.pending = slices.DeleteFunc(m.pending, func(t *modelTimer) bool { return fired[t.value] })
}

// check compares what can be seen from outside, and walks the inside.
func (m *model) check() {
	m.Helper()
	if m.wheel.Len() != len(m.pending) {
		m.Fatalf("Len() = %d, want %d", m.wheel.Len(), len(m.pending))
	}
	next, ok := m.wheel.Next()
	if ok != (len(m.pending) > 0) {
		m.Fatalf("Next() = %d, %v with %d pending", next, ok, len(m.pending))
	}
	for _, t := range m.pending {
		if next > t.when {
			m.Fatalf("Next() = %d, but timer %d is due at %d", next, t.value, t.when)
		}
		if e, ok := m.wheel.Get(t.handle); !ok || e.Value != t.value || e.When != t.when {
			m.Fatalf("Get of timer %d for %d = %+v, %v", t.value, t.when, e, ok)
		}
	}
	for _, h := range m.stale {
		if m.wheel.Cancel(h) {
			m.Fatalf("Cancel of the stale handle %#x hit a timer", h)
		}
		if _, ok := m.wheel.Move(h, m.now); ok {
			m.Fatalf("Move of the stale handle %#x succeeded", h)
		}
	}
	if err := m.wheel.broken(); err != nil {
		m.Fatalf("invariant broken: %v", err)
	}
}
