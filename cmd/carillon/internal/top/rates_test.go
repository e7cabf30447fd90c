package top

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// counters are metrics of a node that has accepted and delivered so much, the lateness of which was below
// 5 ms but for late messages.
func counters(accepted, delivered, late int) string {
	return fmt.Sprintf(`# TYPE carillon_accepted_total counter
carillon_accepted_total %d
# TYPE carillon_delivered_total counter
carillon_delivered_total %d
# TYPE carillon_expired_total counter
carillon_expired_total 0
# TYPE carillon_rejected_total counter
carillon_rejected_total{code="malformed"} 3
carillon_rejected_total{code="unsupported"} 4
# TYPE carillon_dead_lettered_total counter
carillon_dead_lettered_total{code="too-large"} %d
# TYPE carillon_lateness_seconds histogram
carillon_lateness_seconds_bucket{le="0.005"} %d
carillon_lateness_seconds_bucket{le="1"} %[2]d
carillon_lateness_seconds_bucket{le="+Inf"} %[2]d
carillon_lateness_seconds_sum 1
carillon_lateness_seconds_count %[2]d
`, accepted, delivered, late, delivered-late)
}

func sample(t *testing.T, node string, after time.Duration, text string) Sample {
	t.Helper()
	s, err := ReadSample(strings.NewReader(text), node, now.Add(after))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The buckets of a histogram of lateness end at these.
func TestBound_saysADurationShortly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "≤ 0s", 5 * time.Millisecond: "≤ 5ms", 10 * time.Second: "≤ 10s", 30 * time.Second: "≤ 30s", time.Minute: "≤ 1m",
		90 * time.Second: "≤ 1m30s", 10 * time.Minute: "≤ 10m", time.Hour: "≤ 1h", 10 * time.Hour: "≤ 10h", -1: "over 1 h",
	} {
		if got := bound(d); got != want {
			t.Errorf("%v is %q, want %q", int64(d), got, want)
		}
	}
}

func TestHistory_tellsRatesOfTheLastTenSeconds(t *testing.T) {
	var h History
	if r := h.Add(sample(t, "n1", 0, counters(1000, 1000, 0))); r != (Rates{}) {
		t.Errorf("of one sample: %+v", r)
	}
	r := h.Add(sample(t, "n1", 2*time.Second, counters(1200, 1100, 10)))
	want := Rates{Over: 2 * time.Second, In: 100, Out: 50, DeadLetters: 5, Delivered: 100, Late50: 5 * time.Millisecond, Late99: time.Second, LateMost: time.Second}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	for at := 4; at <= 20; at += 2 {
		r = h.Add(sample(t, "n1", time.Duration(at)*time.Second, counters(1200, 1100, 10)))
	}
	if want := (Rates{Over: window}); r.Over != want.Over || r.In != 0 || r.Delivered != 0 {
		t.Errorf("long after: %+v", r)
	}
}

// Another leader counts from elsewhere, and one that has started anew from 0.
func TestHistory_beginsAnewWithAnotherRunOfANode(t *testing.T) {
	for name, next := range map[string]Sample{
		"another leader": sample(t, "n2", time.Second, counters(2000, 2000, 0)),
		"started anew":   sample(t, "n1", time.Second, counters(5, 0, 0)),
		"the same time":  sample(t, "n1", 0, counters(1000, 1000, 0)),
	} {
		var h History
		h.Add(sample(t, "n1", 0, counters(1000, 1000, 0)))
		if r := h.Add(next); r != (Rates{}) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestReadSample_refusesWhatIsNoMetrics(t *testing.T) {
	if _, err := ReadSample(strings.NewReader("<html>"), "n1", now); err == nil {
		t.Error("HTML is taken for metrics")
	}
}
