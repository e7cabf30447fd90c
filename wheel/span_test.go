package wheel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const century = 36525 * day

func TestWheel_firesACenturyOfSparseTimersEachOnItsTick(t *testing.T) {
	const start = 1_790_000_000_000 // 2026, in milliseconds
	w := New[uint64](start)
	r := rand.New(rand.NewPCG(7, 7))
	var want []uint64
	for range 36_525 {
		when := start + r.Uint64N(century)
		want = append(want, when)
		if _, err := w.Add(when, when); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	buf := make([]Expired[uint64], 0, 64)
	var got []uint64
	for next, ok := w.Next(); ok; next, ok = w.Next() {
		due, _ := w.Advance(next-1, buf)
		if len(due) > 0 {
			t.Fatalf("Advance(%d) fired %d", next-1, due[0].When)
		}
		due, _ = w.Advance(next, buf)
		for _, d := range due {
			if d.When != next || d.Value != next {
				t.Fatalf("Advance(%d) fired %+v", next, d)
			}
			got = append(got, d.Value)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("fired %d timers of %d, or not in order", len(got), len(want))
	}
}

// An empty decade takes one call, whose work is bounded, and Next names its end.
func TestWheel_skipsAnEmptyDecadeAtOnce(t *testing.T) {
	const decade uint64 = 3653 * day
	w := New[string](0)
	w.Add(decade, "ten years on")
	if next, ok := w.Next(); !ok || next != decade {
		t.Fatalf("Next() = %d, %v, want %d", next, ok, decade)
	}
	due, more := w.Advance(decade, nil)
	if len(due) != 1 || more {
		t.Fatalf("Advance = %v, %v, want the timer and no more", due, more)
	}
}

// Whatever the steps of the clock, the same timers come in the same order.
func TestWheel_jumpsGiveTheSameAsSingleTicks(t *testing.T) {
	for _, start := range []uint64{0, 1<<32 - 3000, 1<<36 - 3000} {
		r := rand.New(rand.NewPCG(start, 2))
		stepped, jumped := New[int](start), New[int](start)
		for i := range 20_000 {
			when := start + r.Uint64N(1+r.Uint64N(6000))
			stepped.Add(when, i)
			jumped.Add(when, i)
		}
		var want []Expired[int]
		for now := start; now <= start+6000; now++ {
			for more := true; more; {
				want, more = stepped.Advance(now, want)
			}
		}
		var got []Expired[int]
		for now := start; stepped.Len() < jumped.Len(); {
			now += r.Uint64N(1 + r.Uint64N(700))
			jumped.Maintain(now, r.IntN(4))
			for more := true; more; {
				got, more = jumped.Advance(now, got)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("start %d: jumping fired %d timers, single ticks %d, or in another order", start, len(got), len(want))
		}
	}
}
