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
// claimed. It draws for itself, as paused does, in all scripts.
func (r *run) changed(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 2))
	begin := r.ready()
	upheavals := r.upheavals(begin, end)
	for round := range 1 + r.IntN(3) {
		at := begin + time.Duration(r.Int64N(int64(end-begin)))
		if len(upheavals) > 0 && r.chance(0.7) {
			at = max(begin, pick(r, upheavals...)-r.span(time.Millisecond, 100*time.Millisecond))
		}
		source, count := pick(r, r.sources...), int(r.size(1, 30))
		of := fmt.Sprintf("%s count=%d ids=%d deliver-id=moved-%d-%%", source, count, count, round)
		first := r.until(at + r.span(time.Millisecond, 2*r.unit)) // about when it is changed
		if r.chance(0.6) {
			first = r.until(at + r.span(r.unit, 30*r.unit))
		}
		r.at(max(begin, at-r.span(r.unit/10, 5*r.unit)), "produce %s keys=%d key=k%% deliver-to=%s %s", of, r.keys, r.to(), first)
		for range 1 + r.IntN(4) {
			r.at(at, "change %s%s", of, r.change(at))
			at += r.span(time.Millisecond, 5*r.unit)
		}
		if r.chance(0.3) {
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

// upheavals returns when leadership may change hands, as far as that is known before.
func (r *run) upheavals(begin, end time.Duration) []time.Duration {
	verbs := []string{"kill", "stop", "freeze", "isolate", "cut", "silence"}
	var all []time.Duration
	for _, l := range r.timed {
		verb, _, _ := strings.Cut(l.text, " ")
		if l.at >= begin && l.at < end && slices.Contains(verbs, verb) {
			all = append(all, l.at)
		}
	}
	return all
}
