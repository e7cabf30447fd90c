package brokertest

import (
	"strings"
	"testing"
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
