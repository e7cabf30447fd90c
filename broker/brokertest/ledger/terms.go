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
