package wheel

import (
	"testing"

	"pgregory.net/rapid"
)

// cursors are where wheels of the random tests start: at the edges of what
// fits into half a word and into a slot of level 6, among others.
var cursors = []uint64{0, 1<<6 - 1, 1<<32 - 3, 1<<36 - 3, 1<<42 - 1, 1_800_000_000_000, MaxTick - 5000}

// tick draws a tick around base: near, at the edges of a level, or far.
func tick(t *rapid.T, base uint64) uint64 {
	l := rapid.IntRange(0, levelCount-1).Draw(t, "level")
	span := uint64(1) << (slotBits * l)
	jitter := rapid.Uint64Range(0, 2).Draw(t, "jitter") - 1
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0: // in the slots next to the cursor's
		return min(base+rapid.Uint64Range(0, 3).Draw(t, "slots")*span+jitter+1, MaxTick)
	case 1: // on an edge
		return min(base&^(span-1)+span+jitter, MaxTick)
	case 2: // before
		return base - min(base, rapid.Uint64Range(0, span).Draw(t, "back"))
	default:
		return min(base+rapid.Uint64Range(0, span*slotCount).Draw(t, "distance"), MaxTick)
	}
}

func TestWheel_agreesWithSortedModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, rapid.SampledFrom(cursors).Draw(t, "cursor"))
		index := rapid.IntRange(0, 1<<20)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) { m.add(tick(t, m.now)) },
			"crowd": func(t *rapid.T) {
				when := tick(t, m.now)
				step := rapid.SampledFrom([]uint64{0, 1, 63, 64, 4096}).Draw(t, "step")
				for i := range rapid.Uint64Range(1, 400).Draw(t, "n") {
					m.add(min(when+i*step, MaxTick))
				}
			},
			"cancel": func(t *rapid.T) { m.cancel(index.Draw(t, "i")) },
			"cancel many": func(t *rapid.T) {
				i := index.Draw(t, "i")
				for range len(m.pending) * 3 / 4 {
					m.cancel(i)
					i += 7
				}
			},
			"move":     func(t *rapid.T) { m.move(index.Draw(t, "i"), tick(t, m.now)) },
			"advance":  func(t *rapid.T) { m.finish(tick(t, m.now), rapid.SampledFrom([]int{0, 1, 7, 1000}).Draw(t, "room")) },
			"once":     func(t *rapid.T) { m.advance(tick(t, m.now), rapid.IntRange(0, 5).Draw(t, "room")) },
			"to next":  func(t *rapid.T) { next, _ := m.wheel.Next(); m.finish(max(next, m.now), 64) },
			"maintain": func(t *rapid.T) { m.wheel.Maintain(tick(t, m.now), rapid.IntRange(-1, 9).Draw(t, "chunks")) },
			"sweep":    func(t *rapid.T) { m.wheel.sweepChunk() },
			"":         func(*rapid.T) { m.check() },
		})
		m.finish(MaxTick, 1000)
		m.check()
	})
}
