package ledger

import (
	"sort"
	"time"
)

// A Log is what the replicated log has said, as far as the nodes have applied it.
type Log struct {
	Accepted map[uint64]Acceptance // by seq
	Claims   []Claim               // each reaches further than the one before
	Acked    map[uint64]time.Time  // by seq: when the first node had applied that it was delivered
	Repeats  []Sending             // of what was acknowledged
	Held     []Held                // by time
	Passed   []Passed

	paused  map[string]uint64 // by target: the log entry with which a user paused it first
	waiting waiting
	ids     ids
}

// A Sending is a message that was handed to Kafka by a node.
type Sending struct {
	Seq  uint64
	Node string
	At   time.Time
}

// An Acceptance is the moment at which a message became one.
type Acceptance struct {
	Message
	Index   uint64    // of the log entry
	At      time.Time // when the first node had applied it
	Letter  bool      // it took the place of a message that became a dead letter
	Before  uint64    // the message that it took the place of since somebody changed it; 0: none
	ID      ID        // of the user's choice; the zero one: none
	Expires int64     // epoch milliseconds; 0: never
}

// A Claim is a log entry from which on messages due until Through may be delivered.
type Claim struct {
	Index   uint64
	At      time.Time // when the first node had applied it
	Through int64
}

// Claim notes a claim. Those that reach no further than an earlier one say nothing new.
func (l *Log) Claim(c Claim) {
	if n := len(l.Claims); n == 0 || l.Claims[n-1].Through < c.Through {
		l.Claims = append(l.Claims, c)
	}
}

// Accept notes that a message was accepted.
func (l *Log) Accept(a Acceptance) {
	if l.Accepted == nil {
		l.Accepted = make(map[uint64]Acceptance)
	}
	l.acceptID(a)
	l.Accepted[a.Seq] = a
	l.waiting.accept(way{a.ID.Topic, a.Target}, Mark{a.Due, a.Seq})
}

// Ack notes that a message was acknowledged. Of one without an id the log does not say whether it was
// delivered or had expired.
func (l *Log) Ack(seq uint64, at time.Time) {
	if l.hasExpired(l.Accepted[seq]) {
		l.end(seq, Ending{Expired: true})
	}
	if l.Acked == nil {
		l.Acked = make(map[uint64]time.Time)
	}
	if _, known := l.Acked[seq]; !known {
		l.Acked[seq] = at
	}
}

// Send notes that a message was handed to Kafka. The log has nothing against one that it does not know to
// be acknowledged.
func (l *Log) Send(s Sending) {
	l.sendID(s)
	if _, known := l.Acked[s.Seq]; known {
		l.Repeats = append(l.Repeats, s)
	}
}

// checkRepeats: a term begins with all that is in the log. Whatever was lost, killed or frozen, no term
// sends what was acknowledged there before it began.
func (j *judge) checkRepeats() {
	for _, s := range j.Log.Repeats {
		var own *Term
		for i := range j.Terms {
			if t := &j.Terms[i]; t.Node == s.Node && !t.Begin.After(s.At) && (own == nil || own.Begin.Before(t.Begin)) {
				own = t
			}
		}
		if acked := j.Log.Acked[s.Seq]; own != nil && acked.Before(own.Begin) {
			j.problem("duplicates", "seq %d was sent by %s at %v in a term that began at %v, and was acknowledged in the log at %v",
				s.Seq, s.Node, s.At.Sub(j.Begin), own.Begin.Sub(j.Begin), acked.Sub(j.Begin))
		}
	}
}

// claimed returns the first claim that covers what is due then.
func (l *Log) claimed(due int64) (Claim, bool) {
	i := sort.Search(len(l.Claims), func(i int) bool { return l.Claims[i].Through >= due })
	if i == len(l.Claims) {
		return Claim{}, false
	}
	return l.Claims[i], true
}

// checkLog: nothing goes out that no committed claim covers, and no record is two messages, be they
// delivered or not.
func (j *judge) checkLog() {
	taken := make(map[Identity]int)
	for _, a := range j.Log.Accepted {
		if !a.Letter && !a.Unreadable && a.Before == 0 {
			taken[a.Identity]++
		}
	}
	for id, n := range taken {
		if wrote := len(j.records[id]); n > wrote && wrote > 0 {
			j.problem("twice-taken", "%s was accepted as %d messages", j.records[id][0], n)
		}
	}
	for _, d := range j.Deliveries {
		if d.Seq == 0 {
			continue
		}
		switch c, ok := j.Log.claimed(d.Due); {
		case !ok:
			j.problem("unclaimed", "%s for %s, due %d, was sent at %v, and no claim covers it", d.Origin, d.Topic, d.Due, d.At.Sub(j.Begin))
		case c.At.Truncate(time.Millisecond).After(d.At):
			j.problem("unclaimed", "%s for %s, due %d, was sent at %v, and a claim that covers it was committed at %v",
				d.Origin, d.Topic, d.Due, d.At.Sub(j.Begin), c.At.Sub(j.Begin))
		}
	}
}

// bothWaited reports whether two messages were accepted before either was claimed, by the log; known is
// false if it does not tell.
func (j *judge) bothWaited(a, b *Delivery) (waited, known bool) {
	first, ok := j.Log.Accepted[a.Seq]
	second, ok2 := j.Log.Accepted[b.Seq]
	if !ok || !ok2 {
		return false, false
	}
	claim, ok := j.Log.claimed(min(a.Due, b.Due))
	if !ok {
		return false, false
	}
	if first.ID.Topic != second.ID.Topic && (j.Log.wasHeld(first) || j.Log.wasHeld(second)) {
		return false, true // what waits while its delay topic is paused comes after others of its target
	}
	return max(first.Index, second.Index) < claim.Index, true
}
