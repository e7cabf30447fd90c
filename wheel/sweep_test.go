package wheel

import "testing"

// The sweep stands in the middle of a list when that list is taken apart, handed on or
// fired, and the chunks it leaves are used for another.
func TestSweep_forgetsASlotWhoseListIsTaken(t *testing.T) {
	const slot = 3 * 4096
	for name, c := range map[string]struct {
		span uint64 // of 200 timers from tick slot on
		take func(m *model)
	}{
		"split":           {4096, func(m *model) { m.wheel.Maintain(0, 1000) }},
		"handed on whole": {1, func(m *model) { m.wheel.Maintain(0, 1000) }},
		"fired":           {1, func(m *model) { m.finish(slot, 1000) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 0)
			if name == "fired" {
				m.advance(slot, 1) // so that they are added to level 0
			}
			for i := range uint64(200) {
				m.add(slot + i*7%c.span)
			}
			m.wheel.sweepChunk()
			if m.wheel.sweep.at == nil {
				t.Fatal("the sweep does not stand in a list")
			}
			c.take(m)
			m.check()

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
