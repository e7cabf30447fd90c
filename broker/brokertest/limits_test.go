package brokertest

import (
	"strings"
	"testing"
	"time"
)

// With small limits what is rare happens in a short script: the window is full, and so is a
// target, pages end in the middle of a second, the feed overflows.
func TestLimits_areWhatATermRunsWith(t *testing.T) {
	played(t, `
cluster nodes=1 loaded=64 handed=20 flying=4 page=8 feed=16 segment=65536
at 0s create orders.delay partitions=2
at 0s create orders
at 0s create bills
at 0s start all
at 10s produce orders.delay count=400 spread=10s deliver-after=5s
at 10s slow orders answer=500ms
at 12s produce orders.delay count=100 deliver-to=bills deliver-after=1s
at 12s produce orders.delay count=100 deliver-to=late deliver-after=1s
at 15s expect delivered bills count=100
`, func(p *player) {
		s := p.limits.Schedule
		if s.Loaded != 64 || s.Handed != 20 || s.HandedAll != 320 || s.Page != 8 || s.Feed != 16 || p.limits.Deliver.Flying != 4 || p.segment != 65536 {
			t.Errorf("limits %+v, segment %d", p.limits, p.segment)
		}
		before := len(p.consume())
		p.pause(p.span("5s"))
		// Ten answers in five seconds, of four records each.
		if came := len(p.consume()) - before; came == 0 || came > 44 {
			t.Errorf("%d records came in 5 s from a target that answers 4 in 0.5 s", came)
		}
		p.pause(p.span("30s"))
		p.must(p.createTopic("late", arguments{}))
	})
}

func TestLimits_ofThePageFitTheWindow(t *testing.T) {
	_, err := parseScript(strings.NewReader("cluster loaded=3\nat 0s produce orders.delay\n"))
	if err == nil || !strings.Contains(err.Error(), "use 4 or more") {
		t.Errorf("error %v, want that 3 are too few", err)
	}
	s := limitsOf(parseArguments([]string{"loaded=21", "page=33"})).Schedule
	if s.Page != 5 {
		t.Errorf("pages of %d messages for a window of 21", s.Page)
	}
}

// A message takes as long as the syncs of its entry.
func TestLatencies_areWhatCommitsAndAnswersTake(t *testing.T) {
	played(t, `
cluster nodes=3 sync=20ms answer=300ms merge=2 proposal=600 flush=8192
at 0s create orders.delay
at 0s create orders
at 0s start all
at 10s produce orders.delay count=40 about=100ms scatter=5s deliver-at=2000-01-01T00:00:00Z
at 30s expect leader
`, func(p *player) {
		if p.limits.Ingest.Proposal != 600 || p.mergeWidth != 2 {
			t.Errorf("limits %+v, segments merged by %d", p.limits, p.mergeWidth)
		}
		quickest := time.Hour
		came := map[string]time.Time{}
		for _, d := range p.consume() {
			came[d.Origin] = d.At
		}
		dues := map[int64]bool{}
		for _, r := range p.produced {
			quickest = min(quickest, came[r.origin].Sub(r.at))
			dues[r.due] = true
		}
		if quickest < 40*time.Millisecond {
			t.Errorf("a message came %v after its record, and two disks have to sync it, 20 ms each", quickest)
		}
		if len(p.produced) != 40 || len(dues) < 35 {
			t.Errorf("%d records with %d due times, want 40 with as many", len(p.produced), len(dues))
		}
	})
}
