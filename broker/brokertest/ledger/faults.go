package ledger

import (
	"slices"
	"time"
)

// A Fault is something that was done to the cluster, or to Kafka.
type Fault struct {
	Kind        string
	Node        string    // that it befell; empty: not a node
	Topic       string    // that it befell, and no other; empty: it may touch all
	From, Until time.Time // Until is zero while it lasts
}

// A trait says what a kind of fault may cause, by the guarantees. Whatever it does not say is a
// problem also while the fault lasts.
type trait struct {
	delays     bool // messages are late while it lasts, and until it is recovered from
	duplicates bool // they may come twice
	ends       bool // a term may end
	// recovery is how long after its end a fault may still be felt.
	recovery time.Duration
}

// anything is what a fault may cause of which nothing special is said.
var anything = trait{delays: true, duplicates: true, ends: true, recovery: 20 * time.Second}

// absence is that of a target: it is looked for each minute at least, more often when it is new.
var absence = trait{delays: true, recovery: 75 * time.Second}

func traitOf(kind string) trait {
	switch kind {
	case "missing", "forbid":
		return absence
	case "slow", "hush": // of a target; what is not answered for long is sent again
		return trait{delays: true, duplicates: true, recovery: 20 * time.Second}
	case "start": // of a node: an election, perhaps
		return trait{delays: true, ends: true, recovery: 10 * time.Second}
	case "stop", "program": // a hand-over finishes what is on its way
		return trait{delays: true, ends: true, recovery: 20 * time.Second}
	// What is due by a clock waits for it: see trulyDue. One that was set is not believed until
	// others have confirmed it, or for ten seconds; one that is wrong gives leadership away.
	case "clock":
		return trait{delays: true, ends: true, recovery: 15 * time.Second}
	case "stale": // of metadata or offsets; what is written is answered in time
		return trait{delays: true, recovery: 20 * time.Second}
	case "raise", "route":
		return trait{}
	case "partitions": // of a target: what is flying is waited for
		return trait{delays: true, recovery: 10 * time.Second}
	default:
		return anything
	}
}

// recovered returns when a fault is not felt any more; zero: not at all.
func (l *Ledger) recovered(f Fault) time.Time {
	if f.Until.IsZero() {
		return time.Time{}
	}
	recovery := traitOf(f.Kind).recovery
	if f.Kind == "missing" || f.Kind == "forbid" {
		recovery = min(recovery, 10*time.Second+f.Until.Sub(f.From)/6)
	}
	// Elections and looks at Kafka are stretched with the heartbeat.
	return f.Until.Add(recovery + 20*l.Heartbeat + 2*l.Discovery)
}

// A span of time; to is never zero.
type span struct{ from, to time.Time }

// merged returns the spans in order, those that touch as one.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && !s.from.After(out[n-1].to) {
			if s.to.After(out[n-1].to) {
				out[n-1].to = s.to
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// disturbed returns when messages from the delay topic to the target may have been delayed.
func (j *judge) disturbed(topic, target string) []span {
	key := [2]string{topic, target}
	if spans, ok := j.calms[key]; ok {
		return spans
	}
	var spans []span
	for _, f := range j.Faults {
		if !traitOf(f.Kind).delays || f.Topic != "" && f.Topic != target && f.Topic != topic {
			continue
		}
		to := j.recovered(f)
		if to.IsZero() || to.After(j.End) {
			to = j.End
		}
		if to.After(f.From) {
			spans = append(spans, span{f.From, to})
		}
	}
	if j.calms == nil {
		j.calms = make(map[[2]string][]span)
	}
	spans = merged(spans)
	j.calms[key] = spans
	return spans
}

// calm returns how much of the time between from and to no span covers.
func calm(spans []span, from, to time.Time) time.Duration {
	left := to.Sub(from)
	for _, s := range spans {
		if begin, end := later(s.from, from), earlier(s.to, to); end.After(begin) {
			left -= end.Sub(begin)
		}
	}
	return max(left, 0)
}

// near returns a fault that may cause what, and was on at some time between from and to, give or
// take the slack.
func (l *Ledger) near(what func(trait) bool, target string, from, to time.Time, slack time.Duration) (Fault, bool) {
	for _, f := range l.Faults {
		if !what(traitOf(f.Kind)) || f.Topic != "" && f.Topic != target {
			continue
		}
		if f.From.Add(-slack).After(to) || !f.Until.IsZero() && f.Until.Add(slack).Before(from) {
			continue
		}
		return f, true
	}
	return Fault{}, false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Pairs counts the kinds of faults that were there at the same time.
func (l *Ledger) Pairs() map[string]int {
	pairs := make(map[string]int)
	for i, a := range l.Faults {
		for _, b := range l.Faults[i+1:] {
			if overlap(a, b) && a.Kind != b.Kind {
				pairs[min(a.Kind, b.Kind)+"+"+max(a.Kind, b.Kind)]++
			}
		}
	}
	return pairs
}

func overlap(a, b Fault) bool {
	return (a.Until.IsZero() || !b.From.After(a.Until)) && (b.Until.IsZero() || !a.From.After(b.Until))
}
