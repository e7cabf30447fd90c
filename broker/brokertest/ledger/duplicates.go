package ledger

import "time"

// Duplicates counts the copies beyond the first by the kind of fault that excuses them; those that
// nothing excuses by the empty one.
func (l *Ledger) Duplicates() map[string]int {
	counts := make(map[string]int)
	j := judge{Ledger: l, index: newIndex(l)}
	j.eachDuplicate(func(kind string, _, _ *Delivery) { counts[kind]++ })
	return counts
}

// checkDuplicates: a copy comes again only when a fault that the guarantees name came while the one
// before it was on its way.
func (j *judge) checkDuplicates() {
	j.eachDuplicate(func(kind string, first, again *Delivery) {
		if kind == "" {
			j.problem("duplicates", "%s for %s, seq %d, was sent at %v and again at %v, and no fault was near the first time",
				first.Origin, first.Topic, first.Seq, first.At.Sub(j.Begin), again.At.Sub(j.Begin))
		}
	})
}

// What may be written of a target that does not answer: each of its messages, twice again what is given up at first and
// twice what it answers, and what shared a request with another that is silent once more. Besides these it is tried with
// one record each five seconds, and another fault or a term may have all written again.
const (
	mostWritten = 6
	tryEach     = 5 * time.Second
)

// checkCopies: a target that does not answer in time is sent little again, however long that goes on and whatever waits.
func (j *judge) checkCopies() {
	for _, f := range j.Faults {
		switch f.Kind {
		case "slow", "hush", "stall":
			j.checkCopiesBy(f)
		}
	}
}

func (j *judge) checkCopiesBy(silent Fault) {
	topic, within := silent.Topic, span{silent.From, j.orEnd(j.recovered(silent))}
	type message struct {
		Identity
		seq uint64
	}
	messages := make(map[message]bool)
	sent := j.cameBetween(topic, within.from, within.to)
	for _, d := range sent {
		messages[message{d.Identity, d.Seq}] = true
	}
	upsets := 0 // that may have all written again
	for _, t := range j.Terms {
		if t.Begin.After(within.from) && t.Begin.Before(within.to) {
			upsets++
		}
	}
	for _, f := range j.Faults {
		if f != silent && traits[f.Kind].duplicates && (f.Topic == "" || f.Topic == topic) && f.From.Before(within.to) && j.orEnd(j.recovered(f)).After(within.from) {
			upsets++
		}
	}
	most := len(messages)*(mostWritten+upsets) + int(within.to.Sub(within.from)/tryEach)
	if len(sent) > most {
		j.problem("copies", "of %d messages %d records came to %s from %v to %v, when it did not answer in time, and %d are allowed beside %d other faults and terms",
			len(messages), len(sent), topic, within.from.Sub(j.Begin), within.to.Sub(j.Begin), most, upsets)
	}
}

// onItsWay is how long a message is, while nothing is wrong: from when it is sent until the log has its
// Ack, which waits for a tenth of a second or two commits. So this bounds what a fault may repeat. With
// a fault before, members may have to find each other again first.
func (l *Ledger) onItsWay() time.Duration { return time.Second + 2*l.Heartbeat }

// eachDuplicate yields each copy that is not the first of its seq with the one before it.
func (j *judge) eachDuplicate(yield func(kind string, before, again *Delivery)) {
	for _, copies := range j.copies {
		letters := 0
		last := make(map[uint64]*Delivery)
		for _, d := range copies {
			if d.Topic == j.DeadLetters {
				if letters++; letters <= len(j.records[d.Identity]) {
					last[0] = d
					continue
				}
			}
			before, again := last[d.Seq]
			last[d.Seq] = d
			if !again {
				continue
			}
			near := span{before.At.Add(-10*time.Second - 10*j.Heartbeat), before.At.Add(j.onItsWay())}
			fault, excused := j.befell(trait.mayDuplicate, d.Topic, j.leaders(near.from, near.to), near)
			if !excused && j.clockEndedTerm(before.At, near.to) {
				fault.Kind = "clock"
			}
			yield(fault.Kind, before, d)
		}
	}
}
