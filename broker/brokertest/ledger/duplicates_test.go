package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What comes again is excused by what befell who led, or left it without a majority.
func TestJudge_tellsWhatExcusesACopy(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(l *Ledger)
		excused bool
	}{
		"another node that ends, while all others run": {func(l *Ledger) {
			l.Faults = append(l.Faults, Fault{Kind: "full-disk", Node: "o", From: after(399), Until: after(410)})
		}, false},
		"two others that were stopped in order": {func(l *Ledger) {
			l.Faults = append(l.Faults, Fault{Kind: "stop", Node: "m", From: after(100)}, Fault{Kind: "stop", Node: "o", From: after(399)})
		}, false},
		"another node that ends, and was the last one": {func(l *Ledger) {
			l.Faults = append(l.Faults, Fault{Kind: "stop", Node: "m", From: after(100)}, Fault{Kind: "full-disk", Node: "o", From: after(399), Until: after(410)})
		}, true},
		"a wrong clock, whose node has given leadership away": {func(l *Ledger) {
			l.Terms[0].Over, l.Terms[0].Reason = after(400.5), "leadership was lost"
			l.Terms = append(l.Terms, Term{Node: "m", Begin: after(400.5)})
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(10), Offset: 600 * time.Millisecond})
		}, true},
		"a wrong clock of a node that leads on": {func(l *Ledger) {
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(10), Offset: 600 * time.Millisecond})
		}, false},
	} {
		l := wellKept()
		l.MaxSkew = 500 * time.Millisecond
		l.knowLess()
		l.again(398, 405)
		test.change(l)
		found := false
		for _, p := range l.Judge() {
			found = found || p.Check == "duplicates" && strings.Contains(p.Text, "no fault was near")
		}
		if found == test.excused {
			t.Errorf("%s: excused %v, want %v", name, !found, test.excused)
		}
	}
}

// A target whose answers take seconds is sent what waits for it again and again, or only now and then.
func TestJudge_boundsTheCopiesOfATargetThatDoesNotAnswer(t *testing.T) {
	for copies, want := range map[int]bool{5: false, 12: true} {
		l := wellKept()
		l.fault("slow", "orders", 200, 260)
		for second := 200; second < 250; second++ {
			for n := range copies {
				l.again(second, float64(second)+2.1+float64(n)/20)
			}
		}
		problems := l.Judge()
		found := slices.ContainsFunc(problems, func(p Problem) bool { return p.Check == "copies" })
		if found != want || !want && len(problems) > 0 {
			t.Errorf("%d copies of each: want %v, got %v", copies, want, problems)
		}
	}
}
