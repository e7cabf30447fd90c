package wheel

import (
	"encoding/binary"
	"testing"
)

// FuzzWheel runs a script against the model. A script is one byte that picks a
// cursor, and then steps of four bytes:
//
//	byte 0         verb
//	byte 1         level: distances are in slots of it
//	byte 2, 3      argument, little-endian
func FuzzWheel(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 || len(script) > 2000 {
			return
		}
		m := newModel(t, cursors[int(script[0])%len(cursors)])
		for script = script[1:]; len(script) >= 4; script = script[4:] {
			step(m, script[0], script[1], binary.LittleEndian.Uint16(script[2:]))
			m.check()
		}
		m.finish(MaxTick, 100)
		m.check()
	})
}

func step(m *model, verb, level byte, argument uint16) {
	span := uint64(1) << (slotBits * (level % levelCount))
	near := min(m.now+uint64(argument%256)*span, MaxTick)
	edge := min(m.now&^(span-1)+span+uint64(argument%3), MaxTick+1) - 1
	back := m.now - min(m.now, uint64(argument)*span)
	n := int(argument >> 8)
	switch verb % 12 {
	case 0:
		m.add(near)
	case 1:
		m.add(edge)
	case 2:
		m.add(back)
	case 3:
		for i := range uint64(n) {
			m.add(min(near+i%5, MaxTick))
		}
	case 4:
		m.cancel(int(argument))
	case 5:
		for range n {
			m.cancel(int(argument))
		}
	case 6:
		m.move(int(argument), near)
	case 7:
		m.move(int(argument), back)
	case 8:
		m.finish(near, n)
	case 9:
		m.advance(edge, n)
	case 10:
		m.finish(back, n)
	case 11:
		m.wheel.Maintain(near, n)
	}
}
