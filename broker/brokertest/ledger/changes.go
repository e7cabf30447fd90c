package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// What is changed goes on under another seq, with the identity of its record: the producer's record has
// one fate, that of the last message in the row.
//
//	record --> seq 7 --change 1--> seq 9 --change 2--> seq 12 --> delivered, as change 2 has it

// A Change is what somebody asked of the message that waits under an id, and was answered.
type Change struct {
	ID
	// Number is what the message that takes the place has in a header, from 1 on. 0: the one that waits is
	// to be delivered now, and keeps all that it has.
	Number   int
	Target   string // "": it keeps its own
	Due      int64  // epoch milliseconds; 0: it keeps its own
	From, To time.Time

	Answer string // Changed, InDoubt, TooLate, or why nothing was done
	Seq    uint64 // with Changed the new one, with TooLate the one that is on its way or has ended
	Before uint64 // with Changed
	Gone   bool   // with TooLate: it has ended
}

// What a Change may have been answered.
const (
	Changed = "changed"
	InDoubt = "in-doubt" // it may have been done
	TooLate = "too-late"
)

// Change notes that a message has taken the place of the one before.
func (l *Log) Change(before uint64, a Acceptance) {
	l.giveWay(before, Ending{By: a.Seq, Index: a.Index})
	a.Before = before
	l.Accept(a)
}

// changed returns what was accepted by changes, in order of seq.
func (l *Log) changed() []Acceptance {
	all := slices.DeleteFunc(slices.Collect(maps.Values(l.Accepted)), func(a Acceptance) bool { return a.Before == 0 })
	slices.SortFunc(all, func(a, b Acceptance) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// amended returns the records as they came to be: one whose message was changed is as if it had been written
// so, and then.
func (l *Ledger) amended() []Record {
	last := make(map[Identity]Acceptance)
	for _, a := range l.Log.changed() {
		last[a.Identity] = a
	}
	records := slices.Clone(l.Records)
	for i := range records {
		r := &records[i]
		if a, changed := last[r.Identity]; changed {
			r.Target, r.Due, r.At = a.Target, a.Due, a.At
		}
	}
	return records
}

// checkChanges: what was answered was done, no more and no less, and what came of it is what was asked for.
func (j *judge) checkChanges() {
	asked := make(map[int]*Change) // by number
	for i := range j.Changes {
		if c := &j.Changes[i]; c.Number > 0 {
			asked[c.Number] = c
		}
	}
	came := make(map[int]uint64) // seq by number
	for _, a := range j.Log.changed() {
		before := j.Log.Accepted[a.Before]
		if a.Identity != before.Identity {
			j.problem("changed", "seq %d of %s took the place of seq %d, which is of %s", a.Seq, a.Origin, a.Before, before.Origin)
		}
		if a.Number == before.Number {
			j.checkNow(before, a)
			continue
		}
		if first, twice := came[a.Number]; twice {
			j.problem("changed", "change %d of id %q was done twice: to seq %d and to seq %d", a.Number, a.ID.Text, first, a.Seq)
		}
		came[a.Number] = a.Seq
		c := asked[a.Number]
		if c == nil || c.ID != a.ID || c.Answer != Changed && c.Answer != InDoubt {
			j.problem("changed", "seq %d with id %q came by change %d, which is %+v", a.Seq, a.ID.Text, a.Number, c)
			continue
		}
		if a.Target != cmp.Or(c.Target, before.Target) || a.Due != cmp.Or(c.Due, before.Due) {
			j.problem("changed", "seq %d is for %s, due %d, by change %+v of seq %d, which was for %s, due %d", a.Seq, a.Target, a.Due, *c, a.Before, before.Target, before.Due)
		}
	}
	j.checkAnswers()
}

// clockHeld is how far back a clock counts that was set since: until others have confirmed its new time, what is due stands
// still.
const clockHeld = time.Minute

// checkNow: what was to be delivered now is due then, by the clock of who led, or was due before. Where that clock was set it is
// due sooner: by the time that stands still until the new one is believed.
func (j *judge) checkNow(before, a Acceptance) {
	isAsked := func(c Change) bool {
		if c.Number != 0 || c.ID != a.ID || c.Answer != InDoubt && (c.Answer != Changed || c.Seq != a.Seq) || c.From.After(a.At) {
			return false
		}
		behindBefore, aheadBefore := j.wrong(c.From.Add(-clockHeld), a.At)
		_, ahead := j.wrong(c.From, a.At)
		wasSet := behindBefore != 0 || aheadBefore != 0
		atOnce := (wasSet || a.Due >= c.From.UnixMilli()) && a.Due <= a.At.Add(ahead).UnixMilli()
		return a.Target == before.Target && (a.Due == before.Due || atOnce && a.Due < before.Due)
	}
	if !slices.ContainsFunc(j.Changes, isAsked) {
		j.problem("changed", "seq %d with id %q for %s, due %d, took the place of seq %d for %s, due %d, at %v, and nobody asked for it",
			a.Seq, a.ID.Text, a.Target, a.Due, a.Before, before.Target, before.Due, a.At.Sub(j.Begin))
	}
}

// checkAnswers holds the answers against the log and what came out.
func (j *judge) checkAnswers() {
	replaced := make(map[uint64]*Change) // by the seq that was told to have given way
	for i := range j.Changes {
		c := &j.Changes[i]
		switch a := j.Log.Accepted[c.Seq]; c.Answer {
		case Changed:
			replaced[c.Before] = c
			if a.Before == 0 || a.Before != c.Before || a.ID != c.ID || c.Number > 0 && a.Number != c.Number {
				j.problem("changed", "change %+v was told to be done, and the log has seq %d with id %q by change %d in the place of seq %d", *c, a.Seq, a.ID.Text, a.Number, a.Before)
			}
		case TooLate:
			if e, ended := j.Log.ids.ended[c.Seq]; ended && !e.Expired && !c.Gone {
				j.problem("changed", "seq %d with id %q was told to be on its way, and was ended by log entry %d", c.Seq, c.Text, e.Index)
			}
		}
	}
	for _, d := range j.Deliveries {
		if d.Seq == 0 {
			continue
		}
		if c := replaced[d.Seq]; c != nil {
			j.problem("changed", "%s for %s, due %d, seq %d, came at %v, and was told at %v to have given way to seq %d", d.Origin, d.Topic, d.Due, d.Seq, d.At.Sub(j.Begin), c.To.Sub(j.Begin), c.Seq)
		}
		if a, known := j.Log.Accepted[d.Seq]; known && a.Number != d.Number {
			j.problem("changed", "%s for %s, seq %d, came as change %d has it, and was accepted as %d has it", d.Origin, d.Topic, d.Seq, d.Number, a.Number)
		}
	}
}
