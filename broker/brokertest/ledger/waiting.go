package ledger

import (
	"container/heap"
	"slices"
	"time"
)

// A term that begins reads from the marks of the claim, and from nowhere else. So whatever waits lies
// at or after its mark after every command of the log: otherwise it is lost to the next term, whether
// one begins just then or not. That is looked at with each command, since marks move on and the next
// claim may hide what this one has passed.

// waiting is what was accepted and lives, by the log.
type waiting struct {
	alive  map[uint64]bool
	queues map[way]*queue
	held   map[way]int // what is held now: index in Log.Held
	newest uint64      // seq
}

// A way is by which delay topic messages came, and for which target. A hold has one of the two.
type way struct{ delayTopic, target string }

// A queue has what is alive of one way, the lowest first, and some that is dead.
type queue []Mark

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].less(q[j]) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(Mark)) }

func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	*q = (*q)[:last]
	return m
}

func (w *waiting) accept(by way, m Mark) {
	if w.alive == nil {
		w.alive, w.queues = make(map[uint64]bool), make(map[way]*queue)
	}
	q, ok := w.queues[by]
	if !ok {
		q = new(queue)
		w.queues[by] = q
	}
	heap.Push(q, m)
	w.alive[m.Seq], w.newest = true, max(w.newest, m.Seq)
}

// lowest returns the first that is alive of a queue.
func (w *waiting) lowest(q *queue) (Mark, bool) {
	for len(*q) > 0 {
		if m := (*q)[0]; w.alive[m.Seq] {
			return m, true
		}
		heap.Pop(q)
	}
	return Mark{}, false
}

// Kill notes that the messages with those seqs do not live any more.
func (l *Log) Kill(first, last uint64) {
	for seq := first; seq <= min(last, l.waiting.newest); seq++ {
		delete(l.waiting.alive, seq)
	}
}

// A Hold keeps what goes to a target, or what came by a delay topic, from being sent beyond what was claimed.
type Hold struct {
	DelayTopic string // "" of a target
	Target     string // "" of a delay topic
	Through    int64
	Mark       Mark
}

func (h Hold) what() string {
	if h.DelayTopic != "" {
		return "delay topic"
	}
	return "target"
}

// A Held is a time in which the claim held a target, or a pause what it names.
type Held struct {
	Hold
	From, Until time.Time // Until is zero while it lasts
}

// A Passed is a message that a mark has passed: the term that begins then does not find it.
type Passed struct {
	Seq   uint64
	Mark  Mark
	Index uint64 // of the log entry
	Held  bool   // the mark is that of a hold
}

// Marked notes what the marks are after a log entry that the first node has applied at that time.
func (l *Log) Marked(index uint64, at time.Time, main Mark, holds []Hold) {
	marks := make(map[way]Mark, len(holds))
	for _, hold := range holds {
		marks[way{hold.DelayTopic, hold.Target}] = hold.Mark
		l.hold(hold, at)
	}
	for of, i := range l.waiting.held {
		if _, held := marks[of]; !held {
			l.Held[i].Until = at
			delete(l.waiting.held, of)
		}
	}
	for by, q := range l.waiting.queues {
		first, waits := l.waiting.lowest(q)
		mark, held := marks[way{delayTopic: by.delayTopic}] // which stands for all others
		if !held {
			mark, held = marks[way{target: by.target}]
		}
		if !held {
			mark = main
		}
		switch {
		case !waits:
			delete(l.waiting.queues, by)
		case first.less(mark):
			l.Passed = append(l.Passed, Passed{first.Seq, mark, index, held})
			delete(l.waiting.alive, first.Seq) // told of once
		}
	}
}

// hold notes that something is held, from then on if it was not.
func (l *Log) hold(hold Hold, at time.Time) {
	if l.waiting.held == nil {
		l.waiting.held = make(map[way]int)
	}
	of := way{hold.DelayTopic, hold.Target}
	i, held := l.waiting.held[of]
	if held && l.Held[i].Through == hold.Through {
		return
	}
	if held {
		l.Held[i].Until = at
	}
	l.waiting.held[of] = len(l.Held)
	l.Held = append(l.Held, Held{Hold: hold, From: at})
}

// checkPassed: no mark passes what waits.
func (j *judge) checkPassed() {
	for _, p := range j.Log.Passed {
		a, what := j.Log.Accepted[p.Seq], "the claim"
		if p.Held {
			what = "the hold on " + a.Target + ", or of what came by " + a.ID.Topic
		}
		j.problem("stuck", "after log entry %d, %s for %s, due %d, seq %d, accepted by entry %d, lay before the mark %v of %s: no new term would have read it",
			p.Index, a.Origin, a.Target, a.Due, a.Seq, a.Index, p.Mark, what)
	}
}

// checkHeld: what a hold keeps back is not sent.
func (j *judge) checkHeld() {
	held := make(map[way][]Held)
	for _, h := range j.Log.Held {
		of := way{h.DelayTopic, h.Target}
		held[of] = append(held[of], h)
	}
	for _, d := range j.Deliveries {
		if d.Seq == 0 {
			continue
		}
		ofTopic := held[way{delayTopic: j.Log.Accepted[d.Seq].ID.Topic}]
		for _, h := range slices.Concat(held[way{target: d.Topic}], ofTopic) {
			// Times of records are cut to milliseconds.
			sinceThen := d.At.After(h.From) && (h.Until.IsZero() || d.At.Before(h.Until.Truncate(time.Millisecond)))
			if sinceThen && d.Due > h.Through {
				j.problem("unclaimed", "%s for %s, due %d, seq %d, was sent at %v, and since %v the claim held its %s at %d",
					d.Origin, d.Topic, d.Due, d.Seq, d.At.Sub(j.Begin), h.From.Sub(j.Begin), h.what(), h.Through)
			}
		}
	}
}
