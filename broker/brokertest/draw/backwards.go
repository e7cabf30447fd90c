package draw

import (
	"fmt"
	"time"
)

// newestFirst come events once more for targets that are given up, or paused, and come back meanwhile, again and again:
// each is due before all that came before it, and so before every mark that was set. Disks are slow, the window is small,
// and others have more than is read in that time: so the scheduler reads most of the time, hears late of what happens, and
// hands over what it has heard of to who has been given up. Leadership may change while they are: of what waits for
// them the next term knows no more than what was claimed.
func newestFirst(r *run, at, length time.Duration) {
	const lasts = 12 * time.Second
	count := 2 + r.IntN(8)
	topic := func(n int) string { return fmt.Sprintf("again%d", n) }
	r.at(at, "create again%% count=%d", count)
	for range 2 + r.IntN(2) {
		r.slowAll(at, 50*time.Millisecond, 300*time.Millisecond)
		r.produce(at, 400, "key=k%% deliver-to=%s %s spread=%s", r.to(), after(r.unit), span(lasts))
		ago := r.span(lasts, 60*r.unit)
		about := r.span(100*time.Millisecond, 500*time.Millisecond) / time.Duration(count) // about one in a page's time for each
		r.produce(at, int(lasts/about), "backwards about=%s spread=%s deliver-to=again%% targets=%d %s", span(about), span(ago), count, r.until(at-ago))
		at += r.span(100*time.Millisecond, 2*time.Second)
		over := at
		for n := range count {
			fault, mend := "forbid "+topic(n), "allow "+topic(n)
			if r.chance(0.2) {
				fault, mend = "pause target "+topic(n), "resume target "+topic(n)
			}
			begun := at + r.span(time.Millisecond, time.Second)
			r.fault(begun, fault, mend)
			well := begun + r.span(4*time.Second, 9*time.Second)
			r.at(well, "%s", mend)
			over = max(over, well)
		}
		if r.chance(0.5) {
			r.at(at+r.span(2500*time.Millisecond, 5*time.Second), "%s", r.blow("leader"))
		}
		at = over + r.span(time.Second, 10*time.Second)
		r.mend(at)
	}
}

// neverThere are targets that never come. More waits for them than they may have, so that many are given up at once, and
// then those behind them.
func neverThere(r *run, at, length time.Duration) {
	count := 1 + r.IntN(3)
	crowd := count * min(2*r.handed+r.IntN(2*r.handed), 300)
	r.mixed(at, length)
	r.produce(at, crowd, "deliver-to=nowhere%% targets=%d %s", count, pastDue(r, at))
	r.produce(at+r.timeout+r.span(time.Second, r.timeout), crowd, "deliver-to=nowhere%% targets=%d %s", count, delays()[0](r, at))
}
