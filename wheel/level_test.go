package wheel

import (
	"fmt"
	"testing"
)

// fires adds one timer at tick when to a wheel at cursor, and checks that it
// fires at that tick and not at the one before.
func fires(t *testing.T, cursor, when uint64) {
	t.Helper()
	m := newModel(t, cursor)
	m.add(when)
	if next, ok := m.wheel.Next(); !ok || next != when {
		t.Fatalf("cursor %d: Next() = %d, %v, want %d", cursor, next, ok, when)
	}
	m.finish(when-1, 4)
	m.check()
	m.finish(when, 4)
	m.check()
}

func TestWheel_firesOnTheTickAtEveryLevelEdge(t *testing.T) {
	for l := 1; l <= levelCount; l++ {
		edge := uint64(1) << (slotBits * l)
		t.Run(fmt.Sprintf("2^%d", slotBits*l), func(t *testing.T) {
			for _, cursor := range []uint64{0, 1, edge/2 + 1, edge - 64, edge - 2, edge - 1} {
				for _, when := range []uint64{edge - 1, edge, edge + 1, edge + 63, edge + 64, 2*edge - 1, 2 * edge, 63*edge + 1} {
					if when > cursor && when <= MaxTick {
						fires(t, cursor, when)
					}
				}
			}
		})
	}
}

func TestWheel_crossesHalfAWordAndTheLastHintLevels(t *testing.T) {
	for _, edge := range []uint64{1 << 32, 1 << 36, 3 << 32, 1 << 42} {
		for before := range uint64(3) {
			for _, distance := range []uint64{1, 2, 3, 64, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1 << 36, 1<<36 + 1} {
				fires(t, edge-1-before, edge-1-before+distance)
			}
		}
	}
}

// Timers on both sides of an edge, crowded enough to be split, keep their order
// when the slots are opened, split and added to on the way.
func TestWheel_keepsOrderAcrossEveryEdge(t *testing.T) {
	for l := 1; l < levelCount; l++ {
		edge := uint64(1) << (slotBits * l)
		m := newModel(t, edge-min(edge, 100))
		for i := range uint64(300) {
			m.add(edge + i%3 - 1)
			m.add(edge + edge/2 + i%5)
			m.add(2*edge - 1 + i%2)
		}
		for _, now := range []uint64{edge - 2, edge - 1, edge, edge + 1, edge + edge/2 + 2, 2*edge - 2, 2*edge - 1, 2 * edge} {
			m.wheel.Maintain(now, 2)
			for i := range uint64(100) {
				m.add(2*edge - 1 + i%2)
			}
			m.check()
			m.finish(now, 33)
			m.check()
		}
	}
}

func TestWheel_keepsEarlierTimersInFrontWhileTheirSlotIsHalfSplit(t *testing.T) {
	const when = 70_000
	m := newModel(t, 0)
	for range 500 {
		m.add(when)
		m.add(when + 1) // two ticks, so that splitting has to look at each
		m.add(when + 64)
	}
	for m.wheel.Maintain(0, 1) {
		m.add(when)
		m.add(when + 64)
		m.check()
	}
	m.finish(when+64, 100)
	m.check()
}

func TestWheel_keepsOrderWhileATickIsHalfFired(t *testing.T) {
	m := newModel(t, 10)
	for range 200 {
		m.add(20)
	}
	for m.advance(20, 30) {
		m.add(20)
		m.add(19)
		m.cancel(5)
		m.check()
	}
	m.check()
}
