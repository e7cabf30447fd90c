package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Half a minute in which everything is late is excused by what befell who led, or left it without a majority.
func TestJudge_tellsWhichNodesDelayMessages(t *testing.T) {
	hindered := func(l *Ledger, kind, node string) {
		l.Faults = append(l.Faults, Fault{Kind: kind, Node: node, From: after(100), Until: after(130)})
	}
	succeeded := func(l *Ledger, from, to float64) {
		l.Terms[0].Over = after(from)
		l.Terms = append(l.Terms, Term{Node: "m", Begin: after(to)})
	}
	for name, test := range map[string]struct {
		change  func(l *Ledger)
		excused bool
	}{
		"nothing": {func(*Ledger) {}, false},
		"who leads is cut off": {func(l *Ledger) {
			hindered(l, "cut", "n")
		}, true},
		"a follower is cut off": {func(l *Ledger) {
			hindered(l, "cut", "m")
		}, false},
		"a follower is frozen, and has been one for long": {func(l *Ledger) {
			hindered(l, "freeze", "m")
			succeeded(l, 500, 501)
		}, false},
		"two followers have slow disks": {func(l *Ledger) {
			hindered(l, "slow-disk", "m")
			hindered(l, "slow-disk", "o")
		}, true},
		"two faults of one follower": {func(l *Ledger) {
			hindered(l, "slow-disk", "m")
			hindered(l, "cut", "m")
		}, false},
		"nobody leads": {func(l *Ledger) {
			hindered(l, "kill", "n")
			succeeded(l, 101, 130)
		}, true},
		"who led is down, and another leads at once": {func(l *Ledger) {
			hindered(l, "kill", "n")
			succeeded(l, 100, 100.5)
			l.late("orders", 160, 190, time.Minute)
		}, false},
	} {
		l := wellKept()
		l.held("orders", 100, 130, 131)
		test.change(l)
		isExcused := !slices.ContainsFunc(l.Judge(), func(p Problem) bool { return p.Check == "progress" })
		if isExcused != test.excused {
			t.Errorf("%s: excused %v, want %v", name, isExcused, test.excused)
		}
	}
}

// A node that has received a schedule may ask to be started again once all is mended.
func TestJudge_letsANodeBeStartedAgainWhenAllWasMended(t *testing.T) {
	l := wellKept()
	l.Faults = append(l.Faults, Fault{Kind: "stop", Node: "m", From: after(601), Until: after(602)})
	if problems := l.Judge(); len(problems) > 0 {
		t.Errorf("found %v", problems)
	}
}

func TestJudge_findsWhatGoesOnThoughAllWasMended(t *testing.T) {
	for name, change := range map[string]func(l *Ledger){
		"goes on after 10m0s": func(l *Ledger) {
			l.Faults = append(l.Faults, Fault{Kind: "cut", Node: "m", From: after(500)})
		},
		"that of n ended at": func(l *Ledger) {
			l.Faults = append(l.Faults, Fault{Kind: "kill", Node: "n", From: after(500), Until: after(650)})
			l.Terms[0].Over = after(650)
		},
	} {
		l := wellKept()
		change(l)
		problems := l.Judge()
		if !slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.Text, name) && strings.Contains(p.Text, "all") }) {
			t.Errorf("want %q, got %v", name, problems)
		}
	}
}
