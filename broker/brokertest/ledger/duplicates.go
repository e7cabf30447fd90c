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

// checkDuplicates: a copy comes again only when a fault that the guarantees name lay between.
func (j *judge) checkDuplicates() {
	j.eachDuplicate(func(kind string, first, again *Delivery) {
		if kind == "" {
			j.problem("duplicates", "%s for %s, seq %d, was sent at %v and again at %v, and no fault was near",
				first.Origin, first.Topic, first.Seq, first.At.Sub(j.Begin), again.At.Sub(j.Begin))
		}
	})
}

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
			fault, _ := j.near(trait.mayDuplicate, d.Topic, before.At, d.At, 5*time.Second)
			yield(fault.Kind, before, d)
		}
	}
}
