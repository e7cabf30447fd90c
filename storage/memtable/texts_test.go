package memtable

import (
	"strconv"
	"testing"
)

func TestTexts_keepEachOnce(t *testing.T) {
	var kept texts
	if got := kept.kept("a"); got != "a" {
		t.Errorf("an empty table gives back %q", got)
	}
	const count = 10_000
	for round := range 2 {
		for i := range count {
			text := strconv.Itoa(i)
			if got := kept.place(text); got != uint32(i+1) || kept.all[got-1] != text {
				t.Fatalf("round %d: %q has place %d, want %d", round, text, got, i+1)
			}
		}
	}
	if len(kept.all) != count || 4*count > 3*len(kept.places) || len(kept.places) > 4*count {
		t.Errorf("%d texts in %d places, want %d", len(kept.all), len(kept.places), count)
	}
	if got := kept.kept("4711"); got != "4711" {
		t.Errorf("a text that is kept is given as %q", got)
	}
	if got := kept.kept("none"); got != "none" || len(kept.all) != count {
		t.Errorf("a text that is not kept is given as %q, or was kept", got)
	}
}
