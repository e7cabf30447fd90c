package ledger

import (
	"maps"
	"slices"
	"time"
)

// wrong returns between which bounds the clocks of those were wrong that led at some time between
// from and to.
func (l *Ledger) wrong(from, to time.Time) (least, most time.Duration) {
	for i, node := range l.leaders(from, to) {
		low, high := l.wrongOf(node, from, to)
		if i == 0 {
			least, most = low, high
		}
		least, most = min(least, low), max(most, high)
	}
	return least, most
}

// wrongOf is wrong, of one node whether it led or not.
func (l *Ledger) wrongOf(node string, from, to time.Time) (least, most time.Duration) {
	first := true
	take := func(offset time.Duration) {
		if first {
			least, most, first = offset, offset, false
		}
		least, most = min(least, offset), max(most, offset)
	}
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
		return l.members()
	}
	return nodes
}

// members returns the nodes whose clocks are known.
func (l *Ledger) members() []string {
	var nodes []string
	for _, c := range l.Clocks {
		if !slices.Contains(nodes, c.Node) {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// stoodStill returns when nothing was due since nobody knew the time: no majority of the clocks agreed on one, and that of
// the leader had left the one that a majority had agreed on before. A leader whose clock nobody has set goes on.
func (l *Ledger) stoodStill() []span {
	if l.MaxSkew == 0 {
		return nil
	}
	var times []time.Time
	for _, c := range l.Clocks {
		times = append(times, c.At)
	}
	slices.SortFunc(times, time.Time.Compare)
	times = append(slices.CompactFunc(times, time.Time.Equal), l.End)
	var right time.Duration // when a majority agreed last
	var spans []span
	for i, at := range times[:len(times)-1] {
		offsets := l.offsets(at)
		if median, isMajority := l.agreed(offsets); isMajority {
			right = median
			continue
		}
		for _, t := range l.Terms {
			from, to := later(at, t.Begin), times[i+1]
			if !t.Over.IsZero() {
				to = earlier(to, t.Over)
			}
			if to.After(from) && (offsets[t.Node]-right).Abs() > l.MaxSkew-l.MaxSkew/4 {
				spans = append(spans, span{from, to.Add(l.compared())})
			}
		}
	}
	return spans
}

// offsets returns by how much each clock is wrong then.
func (l *Ledger) offsets(then time.Time) map[string]time.Duration {
	offsets, last := make(map[string]time.Duration), make(map[string]time.Time)
	for _, c := range l.Clocks {
		if !c.At.After(then) && !c.At.Before(last[c.Node]) {
			offsets[c.Node], last[c.Node] = c.at(then), c.At
		}
	}
	return offsets
}

// agreed returns the clock in the middle, and whether more than half of them agree with it.
func (l *Ledger) agreed(offsets map[string]time.Duration) (median time.Duration, isMajority bool) {
	sorted := slices.Sorted(maps.Values(offsets))
	median = sorted[len(sorted)/2]
	agree := 0
	for _, offset := range sorted {
		if (offset - median).Abs() <= l.MaxSkew {
			agree++
		}
	}
	return median, 2*agree > len(sorted)
}

// compared is how long it takes at most until members that reach each other have compared clocks.
func (l *Ledger) compared() time.Duration { return 3*time.Second + max(10*time.Second, 10*l.Heartbeat) }

// believed returns how far ahead the clock may be that what was sent then was due by, however wrong
// that of the leader was, and whether anything is known of that: since members last compared clocks
// nothing has parted them, and more than half of them agreed about the time.
func (j *judge) believed(sent time.Time) (most time.Duration, known bool) {
	from := sent.Add(-handed - j.compared())
	parted := slices.ContainsFunc(j.Faults, func(f Fault) bool {
		return traits[f.Kind].ends && f.Kind != "clock" && !f.From.After(sent) && (f.Until.IsZero() || !f.Until.Before(from))
	})
	if j.MaxSkew == 0 || parted {
		return 0, false
	}
	members, agree := j.members(), 0
	for _, node := range members {
		// Any two that are so near to the right time agree.
		if least, ahead := j.wrongOf(node, from, sent); max(-least, ahead) <= j.MaxSkew/2 {
			agree++
			most = max(most, ahead)
		}
	}
	return most + j.MaxSkew, 2*agree > len(members)
}

// inMillis rounds up: times of records are cut to milliseconds, so that one that was sent by a clock which is ahead
// by half of one is early by a whole one.
func inMillis(d time.Duration) time.Duration {
	whole := d.Truncate(time.Millisecond)
	if whole < d {
		whole += time.Millisecond
	}
	return whole
}

// handed is how long a record may have been with a lane, or with Kafka's client, that was due by
// the clock as it was then.
const handed = 10 * time.Second

// checkEarly: never early, by the clock of the node that led, and by max_skew at most where that clock
// is wrong and most of the others are not.
func (j *judge) checkEarly() {
	for _, d := range j.Deliveries {
		if d.Due == 0 {
			continue
		}
		early := time.Duration(d.Due-d.At.UnixMilli()) * time.Millisecond
		if early <= 0 && len(j.Clocks) == 0 {
			continue
		}
		sent := d.At.Add(time.Millisecond) // at the latest, since its time was cut: a clock that drifts is further ahead then
		_, most := j.wrong(d.At.Add(-handed), sent)
		if early > inMillis(most) {
			j.problem("early", "%s for %s, due %d, was sent at %d: %v too early, clocks of leaders being ahead by %v at most",
				d.Origin, d.Topic, d.Due, d.At.UnixMilli(), early, most)
			continue
		}
		if early <= j.MaxSkew {
			continue
		}
		if most, known := j.believed(sent); known && early > inMillis(most) {
			j.problem("early", "%s for %s, due %d, was sent at %d: %v too early, by a clock that is not believed beyond %v, since others agree",
				d.Origin, d.Topic, d.Due, d.At.UnixMilli(), early, most)
		}
	}
}
