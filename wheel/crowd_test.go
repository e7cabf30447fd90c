package wheel

import (
	"math"
	"testing"
)

func TestWheel_firesAMillionOnOneTickInBoundedBatches(t *testing.T) {
	const n = 1_000_000
	w := New[int](0)
	for i := range n {
		w.Add(50_000_000, i)
	}
	buf := make([]Expired[int], 0, 1000)
	next := 0
	for more := true; more; {
		var due []Expired[int]
		due, more = w.Advance(50_000_000, buf)
		if len(due) > cap(buf) {
			t.Fatalf("%d timers in a buffer for %d", len(due), cap(buf))
		}
		for _, e := range due {
			if e.Value != next {
				t.Fatalf("timer %d fired in the place of %d", e.Value, next)
			}
			next++
		}
	}
	if next != n || w.Len() != 0 {
		t.Fatalf("%d fired, %d left", next, w.Len())
	}
}

// crowd puts a million timers into the second that begins at when.
func crowd(w *Wheel[int], when uint64) {
	for i := range 1_000_000 {
		w.Add(when+uint64(i)*7919%1000, i)
	}
}

func TestAdvance_cascadesACrowdInBoundedSteps(t *testing.T) {
	const when = 43_200_000
	w := New[int](0)
	crowd(w, when)
	calls, fired := 0, 0
	for more := true; more; calls++ {
		var due []Expired[int]
		due, more = w.Advance(when, make([]Expired[int], 0, 2000))
		fired += len(due)
	}
	if fired != 1000 {
		t.Fatalf("%d timers fired at the crowd's first tick, want 1000", fired)
	}
	// Each call may handle about 2,016 of a million timers.
	if calls < 1_000_000/advanceWork {
		t.Fatalf("everything cascaded within %d calls: their work is not bounded", calls)
	}
}

// Slots of few timers, all cancelled, give the caller nothing, and are work all the same.
func TestAdvance_clearsCancelledTimersInBoundedSteps(t *testing.T) {
	const slots, each = 200, 20 // slots of level 2 and 3, single chunks
	w := New[int](0)
	for i := range 3 * slots * each { // live ones keep the sweep away
		w.Add(1<<40+uint64(i), i)
	}
	for i := range slots {
		for j := range each {
			h, _ := w.Add(uint64(i*4096+j), i)
			w.Cancel(h)
		}
	}
	for calls, more := 0, true; more; calls++ {
		before := w.dead
		_, more = w.Advance(slots*4096, make([]Expired[int], 0, 100))
		if did := before - w.dead; did > advanceWork+chunkHints {
			t.Fatalf("one Advance cleared %d timers away", did)
		}
		if calls > slots {
			t.Fatalf("more after %d calls", calls)
		}
	}
	if w.dead != 0 {
		t.Fatalf("%d cancelled timers are left", w.dead)
	}
}

// Split ahead, the same crowd fires in one call per tick, with nothing to wait for.
func TestMaintain_sparesAdvanceTheCascade(t *testing.T) {
	const when = 43_200_000
	w := New[int](0)
	crowd(w, when)
	for now := uint64(0); now < when; now += 1_000_000 { // idle time
		for w.Maintain(now, 100) {
		}
	}
	buf := make([]Expired[int], 0, 2000)
	for now := uint64(when); now < when+1000; now++ {
		due, more := w.Advance(now, buf)
		if len(due) != 1000 || more {
			t.Fatalf("at %d: %d timers, more %v, want 1000 at once", now-when, len(due), more)
		}
		for w.Maintain(now, 100) {
		}
	}
}

// A slot is opened when it begins, not when its first timer is due.
func TestMaintain_opensASlotAtItsStart(t *testing.T) {
	const start = 1 << 24
	w := New[int](0)
	for i := range 10_000 {
		w.Add(start+1_000_000+uint64(i), i)
	}
	for w.Maintain(start-1, 100) {
	}
	if w.cursor != start-1 {
		t.Fatalf("cursor = %d before the slot begins", w.cursor)
	}
	for w.Maintain(start+5, 100) {
	}
	if w.cursor != start+5 || w.path[3] == nil || w.path[3].occupied == 0 {
		t.Fatalf("cursor = %d, the slot is not open", w.cursor)
	}
	if err := w.broken(); err != nil {
		t.Fatal(err)
	}
}

func TestMaintain_ofNoChunksDoesNothing(t *testing.T) {
	w := New[int](0)
	crowd(w, 43_200_000)
	for _, chunks := range []int{0, -1, math.MinInt / 2, math.MinInt} {
		if !w.Maintain(0, chunks) {
			t.Errorf("Maintain(0, %d) did all the work", chunks)
		}
	}
}
