package ledger

import (
	"fmt"
	"slices"
	"time"
)

// checkFates: each record has one fate. It was delivered, became a dead letter, waits for a time
// that has not come, or was ended by the log; what was aborted has none.
func (j *judge) checkFates() {
	for i := range j.Records {
		r := &j.Records[i]
		copies, waits := j.copies[r.Identity], j.pending[r.Identity]
		if r.Aborted {
			if len(copies)+len(waits) > 0 && len(j.records[r.Identity]) == 1 {
				j.problem("aborted", "%s was written in a transaction that was aborted, and taken in", r)
			}
			continue
		}
		if len(copies)+len(waits)+j.endedOf(r.Identity) == 0 && !r.Gone && r.Target != "" {
			j.problem("lost", "%s: neither delivered, nor a dead letter, nor in storage, nor ended by the log", r)
		}
		for _, d := range copies {
			if d.Topic != j.DeadLetters && !j.isMeantFor(r.Identity, d.Topic) {
				j.problem("astray", "%s came out in %s", r, d.Topic)
			}
		}
		j.checkDues(r)
	}
	for identity, copies := range j.copies {
		if len(j.records[identity]) == 0 {
			j.problem("astray", "%s: nobody wrote what came out in %s: %.60q", identity.Origin, copies[0].Topic, identity.Value)
		}
	}
}

// isMeantFor reports whether a record of that identity has the target.
func (j *judge) isMeantFor(id Identity, target string) bool {
	return slices.ContainsFunc(j.records[id], func(r *Record) bool { return r.Target == target })
}

// checkDues: the product goes by the time that the producer asked for, and says so. The checks of
// what is early, claimed and in order rest on what a copy says of itself.
func (j *judge) checkDues(r *Record) {
	same := j.records[r.Identity]
	if r.Target == j.DeadLetters || same[0] != r {
		return
	}
	isAsked := func(due int64) bool {
		return slices.ContainsFunc(same, func(r *Record) bool { return r.Due == due })
	}
	for _, d := range j.copies[r.Identity] {
		if d.Topic != j.DeadLetters && (d.Seq == 0 || !isAsked(d.Due)) {
			j.problem("due", "%s came out in %s as due %d, seq %d, and was to be due %d", r, d.Topic, d.Due, d.Seq, r.Due)
		}
	}
	for _, m := range j.pending[r.Identity] {
		if m.Target != j.DeadLetters && !isAsked(m.Due) {
			j.problem("due", "%s waits for %s as due %d, seq %d, and was to be due %d", r, m.Target, m.Due, m.Seq, r.Due)
		}
	}
}

// String tells a record apart from others, and where in a script it comes from.
func (r *Record) String() string {
	due := "at once"
	if r.Due > 0 {
		due = time.UnixMilli(r.Due).UTC().Format(time.StampMilli)
	}
	return fmt.Sprintf("%s (%.40q of %s) for %s due %s", r.Origin, r.Value, r.At.UTC().Format(time.StampMilli), r.Target, due)
}

// checkTakenOnce: a record is one message, with one seq, unless as many were written that cannot be
// told apart.
func (j *judge) checkTakenOnce() {
	for i := range j.Records {
		r := &j.Records[i]
		if same := j.records[r.Identity]; same[0] != r {
			continue // looked at with the first of them
		}
		seqs := make(map[uint64]bool)
		for _, d := range j.copies[r.Identity] {
			if d.Seq != 0 {
				seqs[d.Seq] = true
			}
		}
		for _, m := range j.pending[r.Identity] {
			seqs[m.Seq] = true
		}
		if len(seqs) > len(j.records[r.Identity]) {
			j.problem("twice-taken", "%s was taken in as %d messages", r, len(seqs))
		}
	}
}

// checkDeadLetters: a good message becomes a dead letter only when its target was missing or
// forbidden for missing_target_timeout and it was due for as long, by the clock of the node that led,
// or when the target cannot take it; and is not delivered, too. One that says it was missing or forbidden is not excused by
// what it would not have taken.
func (j *judge) checkDeadLetters() {
	for i := range j.Records {
		r := &j.Records[i]
		if r.Target == j.DeadLetters || len(j.records[r.Identity]) > 1 {
			continue
		}
		var letter, good *Delivery
		for _, d := range j.copies[r.Identity] {
			if d.Topic == j.DeadLetters {
				letter = d
			} else {
				good = d
			}
		}
		if letter == nil {
			continue
		}
		if good != nil {
			// Kafka may have written what it did not answer.
			near := span{earlier(good.At, letter.At).Add(-10 * time.Second), later(good.At, letter.At).Add(10 * time.Second)}
			if _, excused := j.befell(trait.mayDuplicate, r.Target, j.leaders(near.from, near.to), near); !excused {
				j.problem("dead-letter", "%s was delivered and is a dead letter as well", r)
			}
		}
		_, ahead := j.wrong(r.At, letter.At)
		sent := span{later(time.UnixMilli(r.Due).Add(-ahead), r.At).Add(-10 * time.Second), letter.At.Add(10 * time.Second)}
		_, refused := j.befell(trait.mayCondemn, r.Target, nil, sent)
		if mayBeRefused := r.Large || refused || j.wasLimited(r.Target, letter.At); mayBeRefused && !letter.Absent {
			continue
		}
		if letter.Unplaced && j.toldOfFewer(r.Target, sent) {
			continue
		}
		const cut = time.Millisecond // times of records and of clocks are cut to these
		if waited := letter.At.Add(ahead).Sub(time.UnixMilli(r.Due)); waited < j.MissingTimeout-cut {
			j.problem("dead-letter", "%s is one, though it was due for %v only, and %v are allowed", r, waited, j.MissingTimeout)
		}
		condemned := j.condemned(letter)
		if absent := j.absent(r.Target, span{j.keptAside(condemned), letter.At}); absent < j.MissingTimeout {
			j.problem("dead-letter", "%s is one since %s, written at %s, though its target could not be written to for %v only, and %v are allowed",
				r, condemned.Format(time.StampMilli), letter.At.Format(time.StampMilli), absent.Round(time.Second), j.MissingTimeout)
		}
	}
}

// toldOfFewer reports whether all of Kafka told then of fewer partitions than the target had: some were added while
// it told what was true before. Whoever asks again and again for seconds is told the same.
func (l *Ledger) toldOfFewer(target string, near span) bool {
	return slices.ContainsFunc(l.Faults, func(stale Fault) bool {
		until := l.recovered(stale)
		if stale.Kind != "stale" || stale.From.After(near.to) || !until.IsZero() && until.Before(near.from) {
			return false
		}
		return slices.ContainsFunc(l.Faults, func(added Fault) bool {
			return added.Kind == "partitions" && added.Topic == target && !added.From.Before(stale.From) && (until.IsZero() || added.From.Before(until))
		})
	})
}

// wasLimited reports whether the target took small records only at some time before.
func (l *Ledger) wasLimited(target string, at time.Time) bool {
	return slices.ContainsFunc(l.Faults, func(f Fault) bool {
		return f.Kind == "limit" && f.Topic == target && f.From.Before(at)
	})
}

// condemned returns when the message was made a dead letter at the earliest. It may wait from then on, since users have
// paused the delay topic that it came by. Where the log does not tell, that is when it was written.
func (j *judge) condemned(letter *Delivery) time.Time {
	if at, known := j.letters[letter.Identity]; known {
		return j.proposed(earlier(at, letter.At))
	}
	return letter.At
}

// proposed returns when what the log had done at that time was proposed at the earliest, as far as leaders are known: one
// that begins has done what those before it have left before it leads.
func (l *Ledger) proposed(done time.Time) time.Time {
	const moment = time.Second // both are noted within
	var left time.Time
	for _, t := range l.Terms {
		if t.Begin.After(done.Add(-moment)) {
			continue
		}
		until, ended := l.ledUntil(t)
		if !ended || !until.Before(done) {
			return done
		}
		left = later(left, until)
	}
	if left.IsZero() {
		return done
	}
	return left
}

// ledUntil returns when a term ended, which a node that is frozen does not notice, and false while it lasts.
func (l *Ledger) ledUntil(t Term) (time.Time, bool) {
	until := t.Over
	for _, f := range l.Faults {
		if f.Kind == "freeze" && f.Node == t.Node && f.From.After(t.Begin) && (until.IsZero() || f.From.Before(until)) {
			until = f.From
		}
	}
	return until, !until.IsZero()
}

// keptAside returns since when a dead letter that was written then may have been one: when its topic could not
// be written to, it was kept aside, and its target may be there again.
func (l *Ledger) keptAside(written time.Time) time.Time {
	since := written
	lasts := func(f Fault) bool { // until then, or shortly before
		isAbsence := f.Topic == l.DeadLetters && (f.Kind == "missing" || f.Kind == "forbid")
		return isAbsence && f.From.Before(since) && (f.Until.IsZero() || f.Until.Add(traits["missing"].recovery).After(since))
	}
	for {
		before := slices.IndexFunc(l.Faults, lasts)
		if before < 0 {
			return since
		}
		since = l.Faults[before].From
	}
}

// absent returns for how long the target was missing or forbidden, as far as Kafka told, without a pause, in
// that time or shortly before. A pause is one in which somebody had time to ask, and to write.
func (l *Ledger) absent(target string, near span) time.Duration {
	var spans []span
	for _, f := range l.Faults {
		isStray := f.Kind == "stray" && (f.Topic == target || f.Topic == "")
		if !isStray && (f.Topic != target || f.Kind != "missing" && f.Kind != "forbid") {
			continue
		}
		until := f.Until
		if until.IsZero() || until.After(near.to) {
			until = near.to
		}
		if until.After(f.From) {
			spans = append(spans, span{f.From, until})
		}
	}
	spans = merged(spans)
	for i := 1; i < len(spans); i++ {
		before := &spans[i-1]
		unasked := min(before.to.Sub(before.from)/12, time.Minute) + 10*time.Second
		if l.hampered(before.to, spans[i].from) { // two answers prove an absence together
			unasked = 2 * time.Minute
		}
		if spans[i].from.Sub(before.to) < unasked {
			before.to = spans[i].to
			spans = slices.Delete(spans, i, i+1)
			i--
		}
	}
	var longest time.Duration
	for _, s := range spans {
		if s.to.Add(traits["missing"].recovery).After(near.from) {
			longest = max(longest, s.to.Sub(s.from))
		}
	}
	return longest
}

// hampered reports whether the cluster had trouble of its own between, so that it may not have tried to write.
func (l *Ledger) hampered(from, to time.Time) bool {
	return slices.ContainsFunc(l.Faults, func(f Fault) bool {
		until := l.recovered(f)
		return traits[f.Kind].delays && !traits[f.Kind].reads && f.Topic == "" && !f.From.After(to) && (until.IsZero() || !until.Before(from))
	})
}

// checkMarks: whatever waits will be read by the next term, too.
func (j *judge) checkMarks() {
	for _, m := range j.Pending {
		at, mark := (Mark{m.Due, m.Seq}), j.Marks.Main
		if own, held := j.Marks.Holds[m.Target]; held {
			mark = own
		}
		if at.less(mark) {
			j.problem("stuck", "%s for %s, due %d, seq %d, lies before the mark %v of the claim: no term will read it", m.Origin, m.Target, m.Due, m.Seq, mark)
		}
		if len(j.records[m.Identity]) == 0 && !m.Unreadable {
			j.problem("astray", "%s: nobody wrote what waits for %s: %.60q", m.Origin, m.Target, m.Value)
		}
	}
}
