package wheel

import (
	"slices"
	"testing"
)

func TestRun_passesOnWhatIsPostponed(t *testing.T) {
	for _, slot := range []uint64{5 << 18, 5 << 36} { // hints that tell the deadline, and that do not
		m := newModel(t, 0)
		for i := range uint64(10) {
			m.add(slot + i)
			m.move(int(i), slot<<2+i)
		}
		m.add(slot + 100)
		m.finish(slot+99, 10)
		m.check()
		if n := m.wheel.run.len(); n != 1 {
			t.Errorf("the run holds %d timers while one is due in the slot of tick %d", n, slot)
		}
		m.finish(slot<<2+100, 10)
		m.check()
	}
}

func TestRun_firesBeforeWhatIsAddedToItsTickLater(t *testing.T) {
	w := New[string](0)
	w.Add(130, "old")
	w.Add(131, "x")
	w.Advance(128, nil) // enters their slot: the run takes them
	w.Add(130, "new")
	due, _ := w.Advance(130, nil)
	if want := []Expired[string]{{130, "old"}, {130, "new"}}; !slices.Equal(due, want) {
		t.Errorf("fired %v, want %v", due, want)
	}
}

func TestSplit_passesOnWhatIsPostponedBeyondAWideSlot(t *testing.T) {
	const slot = 5 << 36
	m := newModel(t, 0)
	for i := range uint64(2 * chunkHints) {
		m.add(slot + i<<30)
	}
	for i := range chunkHints {
		m.move(i, slot<<2+uint64(i))
	}
	m.wheel.Maintain(0, 1000)
	m.check()
	m.finish(slot<<2+chunkHints, 10)
	m.check()
}
