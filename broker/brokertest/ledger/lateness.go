package ledger

import (
	"slices"
	"time"
)

// patience is how late a message may be while nothing that may delay it is on: records of one
// request wait for an answer for 5 s at most.
func (l *Ledger) patience() time.Duration {
	return 6*time.Second + 10*l.Heartbeat + 2*l.Discovery
}

// mostUsual is how late half of the messages may be while nothing that may delay them is on.
const mostUsual = time.Second

// mostBesideSlow is the same of messages that come one by one, beside targets that answer slowly or not at all.
const mostBesideSlow = 300 * time.Millisecond

// checkLateness: what is due is delivered, without help. What a fault delays is not counted while
// that lasts and is recovered from; one of a target delays no other.
func (j *judge) checkLateness() {
	var usual, beside, besideSlow []time.Duration // of what nothing delayed: without, and beside targets that are bad, or slow
	alone := j.alone()
	for i := range j.Records {
		r := &j.Records[i]
		if r.Aborted || r.Gone || len(j.records[r.Identity]) > 1 {
			continue
		}
		copies := j.copies[r.Identity]
		if r.Target == "" || len(copies) == 0 && j.endedOf(r.Identity) > 0 {
			continue
		}
		until := j.End
		if len(copies) > 0 {
			until = copies[0].At
		}
		due, known := j.trulyDue(r, until)
		if !known {
			continue
		}
		late := calm(j.delayed(r.Topic, r.Target), due, until)
		whole := late == until.Sub(due)
		if len(copies) > 0 {
			late = max(0, late-j.inFront(r.Target, due, until))
		}
		other := j.besideBad(r.Target, due, until)
		switch {
		case len(copies) == 0 || !whole:
		case other:
			beside = append(beside, late)
			if alone[r.Identity] && j.besideBad(r.Target, due, until, "slow", "hush") {
				besideSlow = append(besideSlow, late)
			}
		default:
			usual = append(usual, late)
		}
		switch {
		case late <= j.patience():
		case len(copies) == 0 && len(j.pending[r.Identity]) > 0:
			j.problem("stuck", "%s still waits after %v in which nothing was wrong", r, late)
		case len(copies) == 0: // lost
		case other:
			j.problem("isolation", "%s came %v late beside a target that was bad", r, late)
		default:
			j.problem("progress", "%s came %v late, %v of them with nothing wrong", r, until.Sub(due), late)
		}
	}
	j.checkMedian("isolation", beside, mostUsual, "beside targets that were bad")
	j.checkMedian("isolation", besideSlow, mostBesideSlow, "beside targets that were slow")
	j.checkMedian("progress", usual, mostUsual, "with nothing wrong")
}

// inFront returns how long what came out of a target between from and to kept the next one waiting. Of thousands that are
// due at one instant the last one waits for all others, when few of them are out at a time, whatever other targets are
// like. A target that was kept from sending meanwhile, or sent less than it could, has less to show than time has passed.
func (j *judge) inFront(target string, from, to time.Time) time.Duration {
	return time.Duration(len(j.cameBetween(target, from, to))) * j.Each
}

// checkMedian: half of what nothing delayed came at once, if there was enough of it to tell.
func (j *judge) checkMedian(check string, late []time.Duration, most time.Duration, when string) {
	slices.Sort(late)
	if n := len(late); n >= 20 && late[n/2] > most {
		j.problem(check, "half of %d messages came %v late or more %s", n, late[n/2], when)
	}
}

// alone returns the records that wait for no other of their target: none is due shortly before.
func (j *judge) alone() map[Identity]bool {
	records := make([]*Record, 0, len(j.Records))
	for i := range j.Records {
		records = append(records, &j.Records[i])
	}
	at := func(r *Record) time.Time { return later(time.UnixMilli(r.Due), r.At) }
	slices.SortFunc(records, func(a, b *Record) int { return at(a).Compare(at(b)) })
	alone := make(map[Identity]bool)
	last := make(map[string]time.Time)
	for _, r := range records {
		before, known := last[r.Target]
		alone[r.Identity] = !known || at(r).Sub(before) >= mostCrowded
		last[r.Target] = at(r)
	}
	return alone
}

// mostCrowded is how far messages of one target are apart that come one by one.
const mostCrowded = 200 * time.Millisecond

// trulyDue returns when the record was to be delivered, and whether that time has come. Clocks that
// are behind delay it, if they are before it came, or until now.
func (j *judge) trulyDue(r *Record, until time.Time) (time.Time, bool) {
	due := later(time.UnixMilli(r.Due), r.At)
	if len(j.Clocks) > 0 && r.Due > 0 {
		behind, _ := j.wrong(earlier(due, until), until)
		due = due.Add(-min(behind, 0))
	}
	if r.Target == j.DeadLetters || !j.hasLetter(r) {
		return due, !due.After(j.End)
	}
	return time.Time{}, false // checkDeadLetters has looked at it
}

func (j *judge) hasLetter(r *Record) bool {
	return slices.ContainsFunc(j.copies[r.Identity], func(d *Delivery) bool { return d.Topic == j.DeadLetters })
}

// besideBad reports whether a target other than this one was bad between from and to, in one of these ways;
// none: in any.
func (l *Ledger) besideBad(target string, from, to time.Time, kinds ...string) bool {
	return slices.ContainsFunc(l.Faults, func(f Fault) bool {
		return (len(kinds) == 0 || slices.Contains(kinds, f.Kind)) && f.Topic != "" && f.Topic != target && !f.From.After(to) && (f.Until.IsZero() || !f.Until.Before(from))
	})
}

// checkLetters: a good message that the log has made a dead letter is one that is due for the dead-letter topic from then
// on. It comes there without help, as everything does that is due.
func (j *judge) checkLetters() {
	pending := make(map[uint64]bool)
	for _, m := range j.Pending {
		pending[m.Seq] = true
	}
	for seq, a := range j.Log.Accepted {
		records := j.records[a.Identity]
		if !a.Letter || a.Unreadable || len(records) != 1 {
			continue
		}
		until, written := j.letterWritten(a.Identity)
		if !written {
			until = j.End
		}
		late := calm(j.delayed(records[0].Topic, j.DeadLetters), a.At, until)
		switch {
		case late <= j.patience():
		case written:
			j.problem("progress", "%s, a dead letter since %v, was written to %s %v later, %v of them with nothing wrong",
				records[0], a.At.Sub(j.Begin), j.DeadLetters, until.Sub(a.At), late)
		case pending[seq]:
			j.problem("stuck", "%s, a dead letter since %v, still waits after %v in which nothing was wrong", records[0], a.At.Sub(j.Begin), late)
		}
	}
}

// letterWritten returns when the dead letter of a record was written first, if it was.
func (j *judge) letterWritten(id Identity) (time.Time, bool) {
	for _, d := range j.copies[id] { // by time
		if d.Topic == j.DeadLetters {
			return d.At, true
		}
	}
	return time.Time{}, false
}

// mostBesideStalled is how late a message may be that comes alone, for a target that is well known, while a Kafka broker
// that leads no partition of it answers nothing: what any broker can answer is asked of another one after 100 ms.
const mostBesideStalled = time.Second

// checkBesideStalled: a Kafka broker that answers nothing delays no target that it does not lead, not even for a moment,
// while nothing else is wrong. This is about messages that were accepted before; those that must be read first may wait
// for the broker that has them.
func (j *judge) checkBesideStalled() {
	stalled := func(f Fault) bool { return f.Kind == "stall" }
	if !slices.ContainsFunc(j.Faults, stalled) {
		return
	}
	alone, accepted, wrong := j.alone(), j.acceptedAt(), make(map[[2]string][]span)
	for i := range j.Records {
		r := &j.Records[i]
		copies := j.copies[r.Identity]
		taken, known := accepted[r.Identity]
		if len(copies) == 0 || !known || !alone[r.Identity] || j.hasLetter(r) || len(j.records[r.Identity]) > 1 {
			continue
		}
		due, until := later(later(time.UnixMilli(r.Due), r.At), taken), copies[0].At
		late := until.Sub(due)
		if late <= mostBesideStalled || !j.besideBad(r.Target, due, until, "stall") {
			continue
		}
		way := [2]string{r.Topic, r.Target}
		if _, looked := wrong[way]; !looked {
			wrong[way] = j.wrongBesideStalls(r.Topic, r.Target)
		}
		if calm(wrong[way], due, until) == late {
			j.problem("isolation", "%s came %v late beside a Kafka broker that answered nothing and does not lead its target", r, late)
		}
	}
}

// wrongBesideStalls returns when anything was wrong that may delay what was accepted from the delay topic for the target for
// a moment. What is due for a target that answers slowly may be on its way together with it.
func (j *judge) wrongBesideStalls(topic, target string) []span {
	return j.spansOf(func(f Fault) bool {
		t, isAny := traits[f.Kind], f.Topic == "" || f.Kind == "slow" || f.Kind == "hush"
		switch {
		case !t.delays || t.reads:
			return false
		case f.Kind == "stall":
			return f.Topic == target
		}
		return isAny || f.Topic == target || f.Topic == topic
	})
}

// acceptedAt returns when each record became a message first.
func (j *judge) acceptedAt() map[Identity]time.Time {
	accepted := make(map[Identity]time.Time)
	for _, a := range j.Log.Accepted {
		if at, known := accepted[a.Identity]; !known || a.At.Before(at) {
			accepted[a.Identity] = a.At
		}
	}
	return accepted
}
