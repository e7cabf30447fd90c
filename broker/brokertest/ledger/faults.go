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
	Partitions  int32     // of the kind "partitions": how many the topic had before
}

// A trait says what a kind of fault may cause, by the guarantees. Whatever it does not say is a
// problem also while the fault lasts.
type trait struct {
	delays     bool // messages are late while it lasts, and until it is recovered from
	duplicates bool // they may come twice
	ends       bool // a term may end
	fails      bool // it may end with an error of the node's own
	condemns   bool // records may become dead letters that could be delivered
	reads      bool // it befalls the reading of delay topics alone: what was accepted does not feel it
	// recovery is how long after its end a fault may still be felt.
	recovery time.Duration
}

// traits are all kinds of faults. What has no trait is felt by nobody: what comes of it later, a node
// that starts with another configuration say, is a fault of its own.
var traits = map[string]trait{
	// Of a target. It is looked for each minute at least, more often when it is new.
	"missing": {delays: true, recovery: 75 * time.Second},
	"forbid":  {delays: true, recovery: 75 * time.Second},
	// Kafka says that it is missing, whether it is there or not.
	"stray": {delays: true, recovery: 75 * time.Second},
	// What is not answered for long is sent again, each minute at least, and at once for ten minutes.
	"slow": {delays: true, duplicates: true, recovery: 80 * time.Second},
	"hush": {delays: true, duplicates: true, recovery: 80 * time.Second},
	// A Kafka broker that leads a partition of it answers nothing.
	"stall":    {delays: true, duplicates: true, recovery: 80 * time.Second},
	"recreate": {delays: true, duplicates: true, recovery: 20 * time.Second},
	// What is refused as too large is a dead letter; and one that is refused is tried each few seconds.
	"limit": {delays: true, recovery: 30 * time.Second},
	// What is flying is waited for.
	"partitions": {delays: true, recovery: 10 * time.Second},

	// Of a delay topic.
	"trim":  {delays: true, recovery: 20 * time.Second},
	"elect": {delays: true, recovery: 20 * time.Second},

	// Of Kafka. It starts again, and lacks records of a delay topic.
	"shorten": {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	"error":   {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	// Of a request that reads a delay topic.
	"unread": {delays: true, reads: true, recovery: 20 * time.Second},
	// A record was refused as too large that is not.
	"refuse": {condemns: true, recovery: 20 * time.Second},
	// Of metadata or offsets; what is written is answered in time.
	"stale": {delays: true, recovery: 20 * time.Second},

	// Of nodes. A start may bring an election; a stop hands over, and finishes what is on its way.
	"start":  {delays: true, ends: true, recovery: 10 * time.Second},
	"stop":   {delays: true, ends: true, recovery: 20 * time.Second},
	"kill":   {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	"freeze": {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	// A stop without a majority: what Kafka has answered cannot be put into the log any more.
	"stop-alone": {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	// What is due by a clock waits for it: see trulyDue. One that was set is not believed until
	// others have confirmed it, or for ten seconds; one that is wrong gives leadership away.
	"clock":  {delays: true, ends: true, recovery: 15 * time.Second},
	"config": {},
	"raise":  {},
	// Of a target or a delay topic, which users have wait.
	"pause": {delays: true, recovery: 20 * time.Second},
	// Of topics without a route nothing is read.
	"route": {delays: true, recovery: 20 * time.Second},

	// Of a node's disk. What it does not sync in time is not acknowledged by a term that has ended.
	"slow-disk": {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	"full-disk": {delays: true, duplicates: true, ends: true, fails: true, recovery: 20 * time.Second},

	// Of links.
	"cut":     {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	"silence": {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
	"isolate": {delays: true, duplicates: true, ends: true, recovery: 20 * time.Second},
}

// checkFaults: of a fault that nobody has described nothing is known, so that it excuses nothing.
func (j *judge) checkFaults() {
	for _, f := range j.Faults {
		if _, known := traits[f.Kind]; !known {
			j.problem("script", "a fault of the kind %q: the ledger does not know what it may cause", f.Kind)
		}
	}
}

// recovered returns when a fault is not felt any more; zero: not at all.
func (l *Ledger) recovered(f Fault) time.Time {
	if f.Until.IsZero() {
		return time.Time{}
	}
	recovery := traits[f.Kind].recovery
	switch f.Kind {
	case "missing", "forbid", "stray":
		recovery = min(recovery, 10*time.Second+f.Until.Sub(f.From)/6)
	case "slow", "hush", "stall":
		recovery = min(recovery, 20*time.Second+max(0, f.Until.Sub(f.From)-10*time.Minute)/12)
	}
	return f.Until.Add(l.stretched(recovery))
}

// orEnd returns the time, or that of the end when it is later, or zero: not over yet.
func (l *Ledger) orEnd(t time.Time) time.Time {
	if t.IsZero() || t.After(l.End) {
		return l.End
	}
	return t
}

// stretched returns how long what takes so long at most takes here: elections and looks at Kafka take longer with the heartbeat.
func (l *Ledger) stretched(d time.Duration) time.Duration { return d + 20*l.Heartbeat + 2*l.Discovery }

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

// spansOf returns when there were such faults, each until it was recovered from.
func (j *judge) spansOf(which func(Fault) bool) []span {
	var spans []span
	for _, f := range j.Faults {
		if !which(f) {
			continue
		}
		to := j.orEnd(j.recovered(f))
		if to.After(f.From) {
			spans = append(spans, span{f.From, to})
		}
	}
	return merged(spans)
}

// disturbed returns when messages from the delay topic to the target may have been delayed.
func (j *judge) disturbed(topic, target string) []span {
	key := [2]string{topic, target}
	if spans, ok := j.calms[key]; ok {
		return spans
	}
	spans := merged(slices.Concat(j.unrest(), j.spansOf(func(f Fault) bool {
		return f.Node == "" && traits[f.Kind].delays && (f.Topic == "" || f.Topic == target || f.Topic == topic)
	})))
	j.calms[key] = spans
	return spans
}

// delayed is disturbed, with the times at which nothing was due.
func (j *judge) delayed(topic, target string) []span {
	key := [2]string{topic, target}
	spans, ok := j.delays[key]
	if !ok {
		spans = merged(slices.Concat(j.disturbed(topic, target), j.stoodStill()))
		j.delays[key] = spans
	}
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

func (t trait) mayDuplicate() bool { return t.duplicates }
func (t trait) mayEnd() bool       { return t.ends }
func (t trait) mayFail() bool      { return t.fails }
func (t trait) mayCondemn() bool   { return t.condemns }

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
