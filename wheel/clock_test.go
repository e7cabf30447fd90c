package wheel

import (
	"slices"
	"testing"
)

// values advances to now and returns what fires.
func values(w *Wheel[int], now uint64) []int {
	var got []int
	for more := true; more; {
		var due []Expired[int]
		due, more = w.Advance(now, make([]Expired[int], 0, 8))
		for _, d := range due {
			got = append(got, d.Value)
		}
	}
	return got
}

func TestWheel_firesPastDeadlinesFirstAndInTheirOrder(t *testing.T) {
	w := New[int](1000)
	for _, when := range []uint64{1000, 900, 500, 700, 500} {
		w.Add(when, int(when))
	}
	if got, want := values(w, 1000), []int{500, 500, 700, 900, 1000}; !slices.Equal(got, want) {
		t.Fatalf("fired %v, want %v", got, want)
	}
}

func TestWheel_reportsPastDeadlinesAsAskedFor(t *testing.T) {
	w := New[int](1000)
	w.Add(7, 1)
	due, _ := w.Advance(1000, nil)
	if len(due) != 1 || due[0].When != 7 {
		t.Fatalf("fired %v, want one with When 7", due)
	}
}

func TestWheel_firesNothingEarlyAfterTheClockWentBack(t *testing.T) {
	w := New[int](0)
	w.Add(5000, 5000)
	values(w, 4000)
	for _, step := range []struct {
		add, now uint64
		want     []int
	}{
		{add: 1010, now: 1000}, // three seconds back, and a new short delay
		{now: 1009},
		{now: 1010, want: []int{1010}}, // fires by the new clock
		{add: 3000, now: 2999},
		{now: 500}, // back once more
		{add: 4500, now: 4499, want: []int{3000}},
		{add: 4499, now: 4498},
		{now: 4500, want: []int{4499, 4500}}, // past the old cursor again
		{now: 4999},
		{now: 5000, want: []int{5000}},
	} {
		if step.add != 0 {
			w.Add(step.add, int(step.add))
		}
		if got := values(w, step.now); !slices.Equal(got, step.want) {
			t.Fatalf("at %d: fired %v, want %v", step.now, got, step.want)
		}
	}
}

func TestWheel_cursorNeverGoesBack(t *testing.T) {
	w := New[int](100)
	values(w, 500)
	values(w, 50)
	w.Maintain(20, 10)
	if w.cursor != 500 {
		t.Fatalf("cursor = %d, want 500", w.cursor)
	}
}

func TestWheel_survivesAJumpToTheEndAndBack(t *testing.T) {
	m := newModel(t, 1000)
	m.add(2000)
	m.add(MaxTick)
	m.finish(1<<63, 4) // a clock gone wild
	if m.wheel.Len() != 0 {
		t.Fatalf("%d timers left at the end of time", m.wheel.Len())
	}
	m.add(1500)
	m.add(1400)
	m.add(1500)
	m.finish(1399, 4)
	m.finish(1400, 4)
	m.check()
	m.finish(1500, 4)
	m.check()
}
