package wheel

import "testing"

// The sweep stands in the middle of a long list when that list is taken apart or handed on, and the
// chunks it leaves are used for another.
func TestSweep_forgetsASlotWhoseListIsTaken(t *testing.T) {
	const slot, later = 3 * 4096, 1 << 30
	for name, span := range map[string]uint64{"split": 4096, "handed on whole": 1} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 0)
			for i := range uint64(1000) {
				m.add(slot + i*7%span)
			}
			m.wheel.sweepChunk()
			m.wheel.sweepChunk()
			if m.wheel.sweep.at == nil {
				t.Fatal("the sweep does not stand in a list")
			}
			for m.wheel.Maintain(0, 5) {
			}
			for i := range uint64(1000) {
				m.add(later + i)
			}
			for range 100 {
				m.wheel.sweepChunk()
				m.check()
			}
			m.finish(later+1000, 100)
			m.check()
		})
	}
}

// The sweep has emptied the first of two chunks, so that the slot it stands in is a short one.
func TestSweep_forgetsASlotWhoseLastChunkIsTaken(t *testing.T) {
	const slot, later = 3 * 4096, 1 << 30
	m := newModel(t, 0)
	for i := range uint64(2 * chunkHints) {
		m.add(slot + i)
	}
	for range chunkHints {
		m.cancel(0)
	}
	m.wheel.sweepChunk()
	if m.wheel.sweep.at == nil {
		t.Fatal("the sweep does not stand in a list")
	}
	m.advance(slot, 10)
	for i := range uint64(1000) {
		m.add(later + i)
	}
	for range 100 {
		m.wheel.sweepChunk()
		m.check()
	}
	m.finish(later+1000, 100)
	m.check()
}
