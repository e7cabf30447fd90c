package wheel

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWheel_refusesDeadlinesBeyondMaxTick(t *testing.T) {
	w := New[int](0)
	negative := -1
	for _, when := range []uint64{MaxTick + 1, 1 << 63, uint64(negative)} {
		h, err := w.Add(when, 1)
		if !errors.Is(err, ErrTooFar) || h != 0 {
			t.Errorf("Add(%d) = %#x, %v, want ErrTooFar", when, h, err)
		}
		if !strings.Contains(err.Error(), "deadline") {
			t.Errorf("Add(%d): %q does not name the field", when, err)
		}
	}
	h, err := w.Add(MaxTick, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := w.Move(h, MaxTick+1); ok {
		t.Error("Move beyond MaxTick succeeded")
	}
	if e, ok := w.Get(h); !ok || e.When != MaxTick {
		t.Errorf("after the refused Move: %+v, %v", e, ok)
	}
	if w.Len() != 1 {
		t.Errorf("Len() = %d, want 1", w.Len())
	}
}

func TestWheel_refusesMoreTimersThanItHasIds(t *testing.T) {
	w := New[int](0)
	pending, _ := w.Add(100, 7)
	w.slab.pages = slices.Repeat(w.slab.pages, maxPages)
	w.slab.next = 1 << 32
	if h, err := w.Add(1, 1); !errors.Is(err, ErrFull) || h != 0 {
		t.Fatalf("Add = %#x, %v, want ErrFull", h, err)
	}
	if h, ok := w.Move(pending, 50); ok || h != 0 {
		t.Fatalf("Move to a nearer tick, which needs an id, = %#x, %v", h, ok)
	}
	if e, ok := w.Get(pending); !ok || e != (Expired[int]{100, 7}) || w.Len() != 1 {
		t.Fatalf("afterwards %+v, %v, and %d pending", e, ok, w.Len())
	}
}

func TestWheel_zeroValueIsEmptyAndUsable(t *testing.T) {
	var w Wheel[string]
	if _, ok := w.Next(); ok {
		t.Error("Next of an empty wheel reports a deadline")
	}
	if due, more := w.Advance(10, nil); len(due) != 0 || more {
		t.Errorf("Advance = %v, %v", due, more)
	}
	if w.Maintain(10, 10) {
		t.Error("Maintain of an empty wheel has more to do")
	}
	for range w.Drain() {
		t.Error("Drain of an empty wheel yields")
	}
	if _, err := w.Add(20, "x"); err != nil {
		t.Fatal(err)
	}
	if due, _ := w.Advance(20, nil); len(due) != 1 || due[0].Value != "x" {
		t.Errorf("fired %v, want x", due)
	}
}

func TestWheel_cursorBeyondMaxTickIsTakenAsMaxTick(t *testing.T) {
	m := newModel(t, MaxTick)
	m.wheel = New[int](1 << 63)
	if m.wheel.cursor != MaxTick {
		t.Fatalf("cursor = %d, want MaxTick", m.wheel.cursor)
	}
	m.add(MaxTick)
	m.add(3)
	m.finish(MaxTick, 1)
	m.check()
}

func TestAdvance_fillsTheSpareCapacityAndNoMore(t *testing.T) {
	w := New[int](0)
	for i := range 10 {
		w.Add(5, i)
	}
	buf := make([]Expired[int], 2, 5)
	due, more := w.Advance(5, buf)
	if len(due) != 5 || !more || &due[0] != &buf[0] {
		t.Fatalf("%d timers, more %v, want 5 in the caller's array and more", len(due), more)
	}
	due, more = w.Advance(5, due) // full: room is made
	if len(due) != 12 || more || due[2].Value != 0 || due[11].Value != 9 {
		t.Fatalf("%d timers, more %v, want all behind the first ones", len(due), more)
	}
	if due, _ := w.Advance(6, nil); due != nil {
		t.Fatalf("nothing due, but Advance made room for %d", cap(due))
	}
}

func TestAdvance_returnsManyTimersOfManyTicksAtOnce(t *testing.T) {
	for _, gap := range []uint64{1, 2, 64, 5000} {
		w := New[int](0)
		for i := range uint64(3000) {
			w.Add(gap*i, 0)
		}
		for left, more := 3000, true; more; {
			var due []Expired[int]
			due, more = w.Advance(gap*3000, make([]Expired[int], 0, 1000))
			if left -= len(due); more && len(due) < 500 && left > 0 {
				t.Fatalf("%d ticks apart: %d timers in room for 1000, and more", gap, len(due))
			}
		}
	}
}

func TestMaintain_withoutABudgetSaysOnlyWhetherWorkIsLeft(t *testing.T) {
	w := New[int](0)
	for i := range 1000 {
		w.Add(uint64(100_000+i%7*64), i)
	}
	for _, chunks := range []int{0, -1} {
		if !w.Maintain(0, chunks) {
			t.Errorf("Maintain(0, %d) sees nothing to do", chunks)
		}
	}
	if w.Maintain(0, 1000) {
		t.Error("Maintain(0, 1000) left something")
	}
	if w.Maintain(0, 0) {
		t.Error("Maintain(0, 0) sees work that has been done")
	}
}
