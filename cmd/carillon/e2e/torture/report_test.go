package torture_test

import (
	"testing"

	"github.com/carillonmq/carillon/cmd/carillon/e2e/torture"
)

// One fault alone, two that overlap, and a copy too many during each, and once during none.
func TestReport_givesEachFaultItsPart(t *testing.T) {
	h := newHistory()
	number := 0
	deliver := func(due, at int64, again ...int64) {
		number++
		h.ask(number, due)
		h.Enter(h.copyOf(number, due, at))
		for i, copied := range again {
			c := h.copyOf(number, due, copied)
			c.Offset = int64(1000*(i+1) + number)
			h.Enter(c)
		}
	}
	for due := int64(0); due < 60_000; due += 100 {
		switch {
		case due == 5000:
			deliver(due, due, 5200) // a second copy while nothing happens
		case due >= 9800 && due < 9900 || due >= 10_000 && due < 13_000: // killed at 10 s for 2 s; back at 13 s
			deliver(due, 13_000)
		case due == 13_000:
			deliver(due, due)
		case due == 9900:
			deliver(due, due, 12_900)
		case due == 31_000:
			deliver(due, due, 31_100)
		default:
			deliver(due, due)
		}
	}
	strike := func(kind torture.Kind, begin, end int64) torture.Strike {
		return torture.Strike{Fault: torture.Fault{Kind: kind}, Begin: h.at(begin), End: h.at(end)}
	}
	run := torture.Run{
		Kinds:     []torture.Kind{torture.KillNode, torture.FillDisk, torture.StopNode},
		Strikes:   []torture.Strike{strike(torture.KillNode, 10_000, 12_000), strike(torture.KillNode, 30_000, 32_000), strike(torture.StopNode, 31_000, 33_000)},
		From:      h.at(1000),
		Elections: 3,
	}
	if again := h.Unexplained(run); len(again) != 1 {
		t.Errorf("want one that came again while no fault was on, got %v", again)
	}
	got := h.Report(h.Close(h.at(60_000)), run)
	want := `600 records produced: 600 delivered, 0 dead-lettered, 0 due later, 0 in doubt
0 lost, 0 early, 0 taken in twice, 0 with a wrong or second fate, 0 out of order, 3 duplicates, 3 elections
fault                    faults duplicates   on time again after (p50, max; of)
kill -9 node                  2          1    1.00 s  1.00 s; 1
freeze node                   1          0
of these, overlapping         2          1    0.00 s  0.00 s; 1
no fault                      0          1
lateness of records due   records      p50      p99      max
during faults                  53   0.00 s   3.00 s   3.20 s
until on time again            10   0.40 s   0.80 s   0.90 s
otherwise                     527   0.00 s   0.00 s   0.00 s
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What was given up during a fault may go out once more when all the others are on time again.
func TestUnexplained_leavesASecondAfterTheFault(t *testing.T) {
	for again, want := range map[int64]int{13_900: 0, 14_100: 1} {
		h := newHistory()
		h.ask(1, 9900)
		h.Enter(h.copyOf(1, 9900, 13_000)) // late until then
		second := h.copyOf(1, 9900, again)
		second.Offset = 1001
		h.Enter(second)
		run := torture.Run{From: h.at(1000), Strikes: []torture.Strike{{Fault: torture.Fault{Kind: torture.KillNode}, Begin: h.at(10_000), End: h.at(12_000)}}}
		if found := h.Unexplained(run); len(found) != want {
			t.Errorf("a second copy at %d ms: %v, want %d", again, found, want)
		}
	}
}
