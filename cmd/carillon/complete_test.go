package main

import (
	"slices"
	"testing"
)

func TestOffered_leavesOutWhatAShellCouldRun(t *testing.T) {
	words := map[string]bool{"plain-1": true, "a/b:c@d=e,f%g+h": true, "größe": true, "escape\x1b[2J": true, "line\nbreak": true}
	for _, own := range ofTheShell {
		words["x"+string(own)+"y"] = true
	}
	for _, hostile := range []string{"$(touch x)a", "$(touch x)b", "`touch x`", "~root", "a;b", "-x", "--api=evil.example:80", "a\u00a0b", "a\u202eb"} {
		words[hostile] = true
	}
	got, _ := offered("", words)
	if want := []string{"a/b:c@d=e,f%g+h", "größe", "plain-1"}; !slices.Equal(got, want) {
		t.Errorf("offered %q, want %q", got, want)
	}
	if got, _ := offered("$(", words); len(got) > 0 {
		t.Errorf("offered %q", got)
	}
}
