package wheel

import "testing"

// The sweep stands in the middle of a list when that list is taken apart, handed on, sorted or
// fired, and the chunks it leaves are used for another.
func TestSweep_forgetsASlotWhoseListIsTaken(t *testing.T) {
	const slot = 3 * 4096
	for name, c := range map[string]struct {
		span      uint64 // of 200 timers from tick slot on
		cancelled int    // of the first ones
		take      func(m *model)
	}{
		"split":           {4096, 0, func(m *model) { m.wheel.Maintain(0, 1000) }},
		"handed on whole": {1, 0, func(m *model) { m.wheel.Maintain(0, 1000) }},
		// The sweep empties all chunks but the last, so that the slot becomes a short one.
		"sorted": {200, 3 * chunkHints, func(m *model) { m.advance(slot, 10) }},
		"fired":  {1, 0, func(m *model) { m.finish(slot, 1000) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 0)
			if name == "fired" {
				m.advance(slot, 1) // so that they are added to level 0
			}
			for i := range uint64(200) {
				m.add(slot + i*7%c.span)
			}
			for range c.cancelled {
				m.cancel(0)
			}
			for range max(c.cancelled/chunkHints, 1) {
				m.wheel.sweepChunk()
			}
			if m.wheel.sweep.at == nil {
				t.Fatal("the sweep does not stand in a list")
			}
			c.take(m)

			const later = 1 << 30
			left := len(m.pending)
			for i := range uint64(1000) {
				m.add(later + i)
			}
			for range 200 {
				m.cancel(left)
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
