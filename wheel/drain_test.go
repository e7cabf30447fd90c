package wheel

import "testing"

func TestDrain_yieldsEveryPendingTimerOnce(t *testing.T) {
	m := newModel(t, 1000)
	for i := range uint64(3000) {
		m.add(i * i)
		m.add(1 << (i % 48))
	}
	for i := range 700 {
		m.cancel(i * 3)
		m.move(i, uint64(i)*1e6)
	}
	m.finish(40_000, 100)
	want := map[int]uint64{}
	for _, p := range m.pending {
		want[p.value] = p.when
	}
	for e := range m.wheel.Drain() {
		if when, ok := want[e.Value]; !ok || when != e.When {
			t.Fatalf("Drain yielded %+v, pending %v for %d", e, ok, when)
		}
		delete(want, e.Value)
	}
	if len(want) != 0 {
		t.Fatalf("Drain left %d timers out", len(want))
	}
	for _, p := range m.pending {
		m.stale = append(m.stale, p.handle)
	}
	m.pending = nil
	m.check()

	m.add(50_000) // and the wheel goes on
	m.finish(50_000, 1)
	m.check()
}

func TestDrain_leavesTheRestPendingWhenTheLoopEnds(t *testing.T) {
	m := newModel(t, 0)
	for i := range uint64(10) {
		m.add(100 + i)
	}
	n := 0
	for e := range m.wheel.Drain() {
		m.stale = append(m.stale, m.pending[0].handle)
		if m.pending[0].value != e.Value {
			t.Fatalf("yielded timer %d, want %d", e.Value, m.pending[0].value)
		}
		m.pending = m.pending[1:]
		if n++; n == 4 {
			break
		}
	}
	m.check()
	m.finish(200, 100)
	m.check()
}

func TestDrain_ofAWheelUsedMeanwhileLosesNothing(t *testing.T) {
	w := New[int](0)
	for i := range 5 {
		w.Add(10, i)
	}
	seen := map[int]int{}
	for e := range w.Drain() {
		seen[e.Value]++
		if e.Value < 5 {
			w.Add(20, e.Value+5)
		}
	}
	due, _ := w.Advance(20, nil)
	for _, e := range due {
		seen[e.Value]++
	}
	for v := range 10 {
		if seen[v] != 1 {
			t.Errorf("timer %d came out %d times", v, seen[v])
		}
	}
	if err := w.broken(); err != nil {
		t.Fatal(err)
	}
}

func TestDrain_endsWhenTheLoopAddsWhatItIsYielded(t *testing.T) {
	const n = 1000
	w := New[int](0)
	for i := range n {
		w.Add(100, i)
	}
	yielded := 0
	for e := range w.Drain() {
		w.Add(e.When+1000, e.Value)
		if yielded++; yielded > n {
			t.Fatal("Drain yields what the loop adds, again and again")
		}
	}
	if w.Len() != n {
		t.Errorf("%d pending after each was added again, want %d", w.Len(), n)
	}
}
