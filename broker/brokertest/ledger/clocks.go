package ledger

import (
	"slices"
	"time"
)

// wrong returns between which bounds the clocks of those were wrong that led at some time between
// from and to.
func (l *Ledger) wrong(from, to time.Time) (least, most time.Duration) {
	first := true
	take := func(offset time.Duration) {
		if first {
			least, most, first = offset, offset, false
		}
		least, most = min(least, offset), max(most, offset)
	}
	for _, node := range l.leaders(from, to) {
		last := Clock{Node: node, At: from} // right, until somebody touches it
		for _, c := range l.Clocks {
			switch {
			case c.Node != node || c.At.After(to):
			case c.At.Before(from):
				last = c
			default:
				take(last.at(later(last.At, from)))
				take(last.at(c.At))
				last = c
			}
		}
		take(last.at(later(last.At, from)))
		take(last.at(to))
	}
	return least, most
}

// at returns by how much the clock is wrong then.
func (c Clock) at(t time.Time) time.Duration {
	return c.Offset + time.Duration(t.Sub(c.At).Seconds()*float64(c.Drift))
}

// leaders returns who led at some time between from and to. Where no term is known, everybody may
// have whose clock is.
func (l *Ledger) leaders(from, to time.Time) []string {
	var nodes []string
	add := func(node string) {
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	for _, t := range l.Terms {
		if !t.Begin.After(to) && (t.Over.IsZero() || !t.Over.Before(from)) {
			add(t.Node)
		}
	}
	if len(nodes) == 0 {
		for _, c := range l.Clocks {
			add(c.Node)
		}
	}
	return nodes
}

// handed is how long a record may have been with a lane, or with Kafka's client, that was due by
// the clock as it was then.
const handed = 10 * time.Second

// checkEarly: never early, by the clock of the node that led.
func (j *judge) checkEarly() {
	for _, d := range j.Deliveries {
		if d.Due == 0 {
			continue
		}
		early := time.Duration(d.Due-d.At.UnixMilli()) * time.Millisecond
		if early <= 0 && len(j.Clocks) == 0 {
			continue
		}
		if _, most := j.wrong(d.At.Add(-handed), d.At); early > most.Truncate(time.Millisecond) {
			j.problem("early", "%s for %s, due %d, was sent at %d: %v too early, clocks of leaders being ahead by %v at most",
				d.Origin, d.Topic, d.Due, d.At.UnixMilli(), early, most)
		}
	}
}
