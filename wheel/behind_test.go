package wheel

import "testing"

func TestBehind_keepsThePendingWhenTheCancelledAreDropped(t *testing.T) {
	m := newModel(t, 1<<20)
	for i := range uint64(2000) {
		m.add(i * 7919 % 4096)
	}
	for i := range 1800 {
		m.cancel(i * 31)
	}
	if n := len(m.wheel.behind.heap); n == 2000 {
		t.Error("nothing was dropped")
	}
	m.check()
	m.finish(1<<20, 10)
	m.check()
}
