package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

func TestShrink_leavesWhatFails(t *testing.T) {
	for seed := range uint64(50) {
		script := draw.Script(seed, draw.TrueScale) + "at 77.123s kill n1\nat 1m18.5s produce orders.delay count=1000 key=k% deliver-after=5s\nat 79s start down\n"
		attempts := 0
		got := shrink(script, func(text string) bool {
			attempts++
			kill, produce, ok := strings.Cut(text, "kill n1")
			return ok && strings.HasPrefix(kill, "cluster") && countOf(produce) >= 100
		})
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if len(lines) != 3 || lines[0] != "cluster" {
			t.Fatalf("seed %d: shrunk to\n%s", seed, got)
		}
		if !strings.HasSuffix(lines[1], "kill n1") || countOf(lines[2]) > 200 || strings.Contains(lines[2], "key=") {
			t.Errorf("seed %d: shrunk to\n%s", seed, got)
		}
		if attempts > 1000 {
			t.Errorf("seed %d took %d attempts", seed, attempts)
		}
	}
}

// countOf returns the largest count= in the text.
func countOf(text string) int {
	most := 0
	for _, word := range strings.Fields(text) {
		if value, ok := strings.CutPrefix(word, "count="); ok {
			n, _ := strconv.Atoi(value)
			most = max(most, n)
		}
	}
	return most
}

func TestShrink_keepsAScriptOfWhichAllIsNeeded(t *testing.T) {
	const script = "cluster nodes=1\nat 5s produce orders.delay count=1\nat 6s kill n1\n"
	if got := shrink(script, func(text string) bool { return text == script }); got != script {
		t.Errorf("shrunk to\n%s", got)
	}
}

func TestShrink_roundsTimes(t *testing.T) {
	got := shrink("cluster\nat 1m17.943s kill n1\n", func(text string) bool { return strings.Contains(text, "kill") && strings.Contains(text, "at 1m") })
	if got != "cluster\nat 1m kill n1\n" {
		t.Errorf("shrunk to\n%s", got)
	}
}
