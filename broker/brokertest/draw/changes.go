package draw

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// changed has users change what waits: its time, its target, or so that it comes now. Mostly that is asked for
// shortly before something else happens, so that it is on its way then, and often about when the message is
// claimed. Some of it is cancelled in the end, in the last round at least. Half of the time many ask, some
// milliseconds apart, while a leader is parted from the others: some commands have then reached these, and the leader
// will never hear of it. It draws for itself, as paused does, in all scripts.
func (r *run) changed(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 2))
	begin := r.ready()
	upheavals := r.happened(begin, end, isUpheaval)
	partings := r.happened(begin, end, func(text string) bool {
		return slices.Contains([]string{"freeze leader", "isolate leader", "cut leader", "silence leader"}, text)
	})
	rounds := 1 + r.IntN(3)
	for round := range rounds {
		at := begin + time.Duration(r.Int64N(int64(end-begin)))
		source, count, about := pick(r, r.sources...), int(r.size(1, 30)), ""
		switch {
		case r.nodes > 1 && r.chance(0.5):
			if len(partings) == 0 {
				r.fault(at, "isolate leader", "heal")
				r.at(at+r.span(r.heartbeat, 20*r.heartbeat), "heal")
				partings = append(partings, at)
			}
			before := r.span(15*time.Millisecond, 150*time.Millisecond)
			at = max(begin, pick(r, partings...)-before)
			count, about = 30, " about="+span(before/15)
		case len(upheavals) > 0 && r.chance(0.7):
			at = max(begin, pick(r, upheavals...)-r.span(time.Millisecond, 100*time.Millisecond))
		}
		of := fmt.Sprintf("%s count=%d ids=%d deliver-id=moved-%d-%%", source, count, count, round)
		first := r.until(at + r.span(time.Millisecond, 2*r.unit)) // about when it is changed
		if r.chance(0.6) {
			first = r.until(at + r.span(r.unit, 30*r.unit))
		}
		r.at(max(begin, at-r.span(r.unit/10, 5*r.unit)), "produce %s keys=%d key=k%% deliver-to=%s %s", of, r.keys, r.to(), first)
		for range 1 + r.IntN(4) {
			r.at(at, "change %s%s%s", of, about, r.change(at))
			at += r.span(time.Millisecond, 5*r.unit)
		}
		if r.chance(0.3) || round == rounds-1 {
			r.at(at, "produce %s deliver-cancel=true", of)
		}
	}
}

// change draws what of a message is changed at a time, and whether it must be the one that waits then.
func (r *run) change(at time.Duration) string {
	how := pick(r, "", "", " exactly")
	due := func() string { return r.until(at + r.span(time.Millisecond, 30*r.unit)) }
	return how + pick(r,
		" now",
		" "+due(),
		fmt.Sprintf(" %s spread=%s", due(), span(r.span(time.Millisecond, 10*r.unit))),
		fmt.Sprintf(" deliver-to=%s", r.to()),
		fmt.Sprintf(" deliver-to=%s %s", r.to(), due()),
		" "+pastDue(r, at),
	)
}

// isUpheaval reports whether a line does what may end a term.
func isUpheaval(text string) bool {
	verb, _, _ := strings.Cut(text, " ")
	return slices.Contains([]string{"kill", "stop", "freeze", "isolate", "cut", "silence"}, verb)
}

// happened returns when something of that kind happens, as far as that is known before.
func (r *run) happened(begin, end time.Duration, isMeant func(text string) bool) (all []time.Duration) {
	for _, l := range r.timed {
		if l.at >= begin && l.at < end && isMeant(l.text) {
			all = append(all, l.at)
		}
	}
	return all
}
