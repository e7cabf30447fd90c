package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/wheel/timer"
)

// A hundred thousand messages may be out at one moment, and none for a day after that.
func TestOutRefs_keepNoMemoryOfWhatIsGone(t *testing.T) {
	const n = 100_000
	var out outRefs
	for seq := range uint64(n) {
		out.add(storage.Ref{Due: 1, Seq: seq})
	}
	first := uint64(n - 1)
	if got := out.lowest(func(ref storage.Ref) bool { return ref.Seq < first }); got.Seq != first {
		t.Errorf("the lowest that is out is %v, want seq %d", got, first)
	}
	if got := out.lowest(func(storage.Ref) bool { return true }); got != endOfSchedule {
		t.Errorf("the lowest that is out is %v, want none", got)
	}
	if out.inOrder != nil {
		t.Errorf("room for %d refs is kept, and what lies before it in memory", cap(out.inOrder))
	}
}

// What is due in one millisecond goes out in order though there is more of it than is taken out of the wheel at a time, and
// some of it was added before what comes first.
func TestWindow_keepsTheOrderOfAMillisecond(t *testing.T) {
	const start, page, due = 1_000, 4, 2_000
	limits := DefaultLimits()
	limits.Page = page
	w := newWindow(timer.QueueConfig{Start: start, Now: func() time.Time { return time.UnixMilli(due) }}, limits)
	add := func(first, last uint64) {
		for seq := first; seq <= last; seq++ {
			if err := w.add(storage.Ref{Due: due, Seq: seq}, keptMessage{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(100, 110)
	add(1, 3*page)
	var got []uint64
	for {
		ripe, more := w.ripen()
		n := min(len(ripe), 3)
		for _, e := range ripe[:n] {
			got = append(got, e.Value.seq)
		}
		w.take(n)
		if len(got) == 3 {
			add(3*page+1, 4*page)
		}
		if !more && len(w.ripe) == 0 {
			break
		}
	}
	if len(got) != 11+4*page || !slices.IsSorted(got) {
		t.Errorf("went out in the order %v", got)
	}
}
