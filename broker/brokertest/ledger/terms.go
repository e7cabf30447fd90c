package ledger

import (
	"slices"
	"strings"
	"time"
)

// ordinary are what a term says that ended by a fault. Any other reason is a part of the program
// that gave up: a check of its own that failed, say.
var ordinary = []string{"leadership was lost", "not the leader", "outcome unknown", "node is closed", "context canceled",
	"timed out enqueuing operation"}

// checkTerms: leadership moves only when something was done to the cluster.
func (j *judge) checkTerms() {
	slack := 20*time.Second + 20*j.Heartbeat
	for _, t := range j.Terms {
		if t.Over.IsZero() {
			continue
		}
		// A fault may be felt late, but not before it came.
		from := t.Over.Add(-slack)
		_, excused := j.befell(trait.mayEnd, "", []string{t.Node}, span{from, t.Over})
		_, mayFail := j.befell(trait.mayFail, "", []string{t.Node}, span{from, t.Over})
		switch {
		case !excused && !j.isClockWrong(t.Node, from, t.Over):
			j.problem("term", "that of %s ended at %v, and no fault was near: %s", t.Node, t.Over.Sub(j.Begin), t.Reason)
		case !mayFail && t.Reason != "" && !isOrdinary(t.Reason):
			j.problem("term", "that of %s ended at %v, and no fault may end it so: %s", t.Node, t.Over.Sub(j.Begin), t.Reason)
		}
	}
}

// checkQuiet: once all is mended nothing goes on that is no matter of a topic, and whoever leads then, or is elected by those
// that were started for it, leads to the end. So what is delivered by then needs no new term.
func (j *judge) checkQuiet() {
	if j.Quiet.IsZero() {
		return
	}
	for _, f := range j.Faults {
		goesOn := !f.From.After(j.Quiet) && (f.Until.IsZero() || f.Until.After(j.Quiet)) // a node may be started again later
		if f.Topic == "" && traits[f.Kind].delays && goesOn {
			j.problem("script", "a fault of the kind %q of %q goes on after %v, when all was mended", f.Kind, f.Node, j.Quiet.Sub(j.Begin))
		}
	}
	recovered := j.Quiet.Add(j.stretched(traits["kill"].recovery))
	for _, t := range j.Terms {
		if t.Over.After(recovered) {
			j.problem("term", "that of %s ended at %v, when all had been mended at %v: %s", t.Node, t.Over.Sub(j.Begin), j.Quiet.Sub(j.Begin), t.Reason)
		}
	}
}

// clockEndedTerm reports whether a term ended then whose leader may have given leadership away since its clock was wrong:
// what Kafka has just answered is not in the log.
func (j *judge) clockEndedTerm(from, to time.Time) bool {
	return slices.ContainsFunc(j.Terms, func(t Term) bool {
		return !t.Over.Before(from) && !t.Over.After(to) && j.isClockWrong(t.Node, from, t.Over)
	})
}

// isClockWrong reports whether a node's clock was so wrong that it may have given leadership away, however long ago it was
// set.
func (l *Ledger) isClockWrong(node string, from, to time.Time) bool {
	least, most := l.wrongOf(node, from, to)
	return l.MaxSkew > 0 && max(-least, most) > l.MaxSkew/2
}

func isOrdinary(reason string) bool {
	for _, text := range ordinary {
		if strings.Contains(reason, text) {
			return true
		}
	}
	return false
}

// What befalls a node is felt by all when the node leads, or when so many are hindered that no majority is left.

// befell returns a fault that may cause what, was on at some time of the span, and befell one of the nodes, or none in
// particular. Those of other nodes count when they leave no majority, with those that are stopped, and of clocks, which are
// compared.
func (l *Ledger) befell(what func(trait) bool, target string, nodes []string, near span) (Fault, bool) {
	var ofOthers Fault
	away := make(map[string]bool) // or hindered
	for _, f := range l.Faults {
		if f.From.After(near.to) || !f.Until.IsZero() && f.Until.Before(near.from) || f.Topic != "" && f.Topic != target {
			continue
		}
		may := what(traits[f.Kind])
		switch {
		case may && (f.Node == "" || f.Kind == "clock" || slices.Contains(nodes, f.Node)):
			return f, true
		case may:
			ofOthers, away[f.Node] = f, true
		case f.Kind == "stop":
			away[f.Node] = true
		}
	}
	if ofOthers.Kind == "" || int64(2*len(away)) < l.Costs.Nodes {
		return Fault{}, false
	}
	return ofOthers, true
}

// A reign is a span in which a node led and no other had begun to lead since.
type reign struct {
	span
	node string
}

// reigns returns them in order.
func (l *Ledger) reigns() []reign {
	var reigns []reign
	for _, t := range l.Terms {
		reigns = append(reigns, reign{span{t.Begin, l.orEnd(t.Over)}, t.Node})
	}
	slices.SortStableFunc(reigns, func(a, b reign) int { return a.from.Compare(b.from) })
	for i := range len(reigns) - 1 {
		reigns[i].to = earlier(reigns[i].to, reigns[i+1].from)
	}
	return reigns
}

// unrest returns when messages may have been delayed by what befell nodes: who led, until it is recovered from, whoever leads
// by then; so many that no majority was left; and when nobody led, until the term that began then has read what waits.
func (j *judge) unrest() []span {
	if j.upset != nil {
		return j.upset
	}
	j.upset = j.leaderless()
	hindered := make(map[string][]span)
	reigns := j.reigns()
	for _, f := range j.Faults {
		if f.Node == "" || !traits[f.Kind].delays {
			continue
		}
		to := j.orEnd(j.recovered(f))
		hindered[f.Node] = append(hindered[f.Node], span{f.From, to})
		for _, r := range reigns {
			if r.node == f.Node && r.to.After(f.From) && to.After(r.from) {
				j.upset = append(j.upset, span{later(f.From, r.from), earlier(to, r.to.Add(j.stretched(traits[f.Kind].recovery)))})
			}
		}
	}
	j.upset = merged(append(j.upset, j.withoutMajority(hindered)...))
	return j.upset
}

// leaderless returns when nobody led, with the time that a new term takes.
func (j *judge) leaderless() []span {
	var spans []span
	last := j.Begin
	for _, r := range j.reigns() {
		spans = append(spans, span{last, r.from.Add(j.stretched(traits["start"].recovery))})
		last = r.to
	}
	return append(spans, span{last, j.End})
}

// withoutMajority returns when at most half of the nodes were not hindered.
func (j *judge) withoutMajority(hindered map[string][]span) []span {
	type change struct {
		at time.Time
		by int // of those that are hindered
	}
	var changes []change
	for _, spans := range hindered {
		for _, s := range merged(spans) {
			changes = append(changes, change{s.from, 1}, change{s.to, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	var spans []span
	count := int64(0)
	for i, c := range changes {
		count += int64(c.by)
		if 2*count >= j.Costs.Nodes && i+1 < len(changes) {
			spans = append(spans, span{c.at, changes[i+1].at})
		}
	}
	return spans
}
