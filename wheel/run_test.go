package wheel

import "testing"

func TestRun_holdsNothingThatIsPostponedBeyondItsSlot(t *testing.T) {
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
