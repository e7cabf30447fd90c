package deliver

import (
	"slices"
	"time"
)

const (
	// countMaxAge bounds how long partitions that are added to a target go unused.
	countMaxAge = 5 * time.Second
	// lookAgain is the time between two looks for a partition that is not there.
	lookAgain = time.Second
	// lookedFor is how long a partition must not have been there, by two answers at
	// least, before a message that names it is condemned. A Kafka broker that was frozen
	// answers from the past, and a new partition takes a moment to be known everywhere.
	lookedFor = 3 * time.Second
)

// partitions returns how many partitions the target has, as Kafka last said. It never
// waits: a count that is old is good while another is asked for. Where there is none,
// because something of the target has failed, the answer wakes the lane, and both
// results are zero; or Kafka has said that there is none, or nothing, which is an error
// once.
func (l *lane) partitions() (int32, error) {
	if err := l.absent.recent(); err != nil {
		return 0, err
	}
	if err := l.heard.Err; err != nil {
		l.heard = PartitionCount{}
		return 0, err
	}
	if l.heard.Count == 0 || time.Now().After(l.askNext) {
		l.ask()
	}
	return l.heard.Count, nil
}

func (l *lane) ask() {
	if !l.asking {
		l.asking, l.askedAt = true, time.Now()
		l.p.prober.ask(l.target)
	}
}

// takeAnswers hears how many partitions there are. An answer that says nothing of the
// kind counts only when there is none yet: what is sent will fail if it is true.
func (l *lane) takeAnswers() {
	for _, heard := range l.answers.Take(nil) {
		l.asking = false
		l.absent.hear(heard.Err)
		if heard.Err != nil && l.heard.Count > 0 {
			l.askNext = time.Now().Add(lookAgain)
			continue
		}
		l.heard, l.askNext = heard, time.Now().Add(countMaxAge)
		if heard.Err == nil {
			l.place()
		}
	}
}

// setUnplaced takes a message whose partition is not there, the first that is ready, out
// of the way of the others. None of these is for the same partition.
func (l *lane) setUnplaced(o *outgoing) {
	l.ready[0] = nil
	l.ready = l.ready[1:]
	o.unplaced, o.missed = time.Now(), time.Time{}
	l.unplaced = append(l.unplaced, o)
}

// look asks for the partitions that are not there, when it is time.
func (l *lane) look() {
	if len(l.unplaced) > 0 && time.Since(l.askedAt) >= lookAgain {
		l.ask()
	}
}

// place makes ready what was set aside, in its order: all of it when the target has
// another number of partitions now, else what was looked for for long enough, and is
// condemned. Only an answer to a question that was put after a message was set aside
// counts for that one.
func (l *lane) place() {
	changed := l.heard.Count != l.count
	var back, rest []*outgoing
	for _, o := range l.unplaced {
		switch {
		case changed:
			back = append(back, o)
			continue
		case l.askedAt.Before(o.unplaced):
		case o.missed.IsZero():
			o.missed = time.Now()
		case time.Since(o.missed) >= lookedFor:
			o.nowhere = true
			back = append(back, o)
			continue
		}
		rest = append(rest, o)
	}
	l.unplaced = rest
	if len(back) > 0 {
		l.ready = append(back, l.ready...)
		slices.SortFunc(l.ready, func(a, b *outgoing) int { return a.ref.Compare(b.ref) })
	}
}
