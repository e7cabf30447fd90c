package ledger

import (
	"slices"
	"time"
)

// What a message with an id may come to beside delivery is told by the log. Nothing here judges which
// answer is right; whoever cancels wants four things, whatever led to the answer:
//
//   - what the log has ended is never delivered;
//   - what a claim has let go is not ended, for it may be on its way;
//   - what could be ended is not answered for as if it were not there;
//   - of one id no two wait.

// An ID is a user's, within its delay topic.
type ID struct{ Topic, Text string }

// An Ending says that the log has ended a message that was neither delivered nor a dead letter.
type Ending struct {
	Expired bool   // else it was cancelled, or another one has taken its place
	By      uint64 // the one that has taken its place since somebody changed it; 0: none
	Index   uint64
}

// A Broken is what one of the rules above was broken by.
type Broken struct {
	Seq   uint64
	Index uint64
	Text  string
}

// ids is what is known of them.
type ids struct {
	waits   map[ID][]uint64 // seqs with that id that are not known to be dead, in order
	ended   map[uint64]Ending
	refused map[Identity]bool // records whose condition did not hold
	late    []Sending         // what was expired when it was sent, by the clock of nobody
	broken  []Broken
	time    int64 // of the state, epoch milliseconds
}

// Time notes the leader's time that a command carries.
func (l *Log) Time(ms int64) { l.ids.time = max(l.ids.time, ms) }

// acceptID notes that a message with an id waits from now on.
func (l *Log) acceptID(a Acceptance) {
	if a.ID.Text == "" {
		return
	}
	if l.ids.waits == nil {
		l.ids.waits = make(map[ID][]uint64)
	}
	free := slices.DeleteFunc(l.ids.waits[a.ID], func(seq uint64) bool { return !l.isFree(seq) })
	if len(free) > 0 {
		l.ids.broken = append(l.ids.broken, Broken{a.Seq, a.Index, "was accepted while another one of its id could be cancelled"})
	}
	l.ids.waits[a.ID] = append(free, a.Seq)
}

// isFree reports whether a message waits and could be cancelled.
func (l *Log) isFree(seq uint64) bool {
	a := l.Accepted[seq]
	return l.waiting.alive[seq] && !l.hasExpired(a) && !l.isClaimed(a) && !l.wasHeld(a)
}

// wasHeld reports whether a delay topic was held by which the message came, or its target was paused before it did:
// what of it is claimed is not known here, since a pause does not take back what was, and what comes after it is
// not claimed by what holds say.
func (l *Log) wasHeld(a Acceptance) bool {
	if since, paused := l.paused[a.Target]; paused && a.Index > since {
		return true
	}
	return slices.ContainsFunc(l.Held, func(h Held) bool { return h.DelayTopic != "" && h.DelayTopic == a.ID.Topic })
}

// hasExpired reports whether a message is of no use any more, by the state's time.
func (l *Log) hasExpired(a Acceptance) bool { return a.Expires > 0 && a.Expires <= l.ids.time }

// Pause notes that a user has paused a target.
func (l *Log) Pause(target string, index uint64) {
	if l.paused == nil {
		l.paused = make(map[string]uint64)
	}
	if _, known := l.paused[target]; !known {
		l.paused[target] = index
	}
}

// isClaimed reports whether a claim has let a message go.
func (l *Log) isClaimed(m Acceptance) bool {
	n := len(l.Claims)
	if n == 0 || l.Claims[n-1].Through < m.Due {
		return false
	}
	i, held := l.waiting.held[way{target: m.Target}]
	return !held || l.Held[i].Through >= m.Due
}

// End notes that a message was cancelled, or a record has taken its place.
func (l *Log) End(seq, index uint64) { l.giveWay(seq, Ending{Index: index}) }

func (l *Log) giveWay(seq uint64, e Ending) {
	if a := l.Accepted[seq]; l.waiting.alive[seq] && l.isClaimed(a) && !l.wasHeld(a) {
		l.ids.broken = append(l.ids.broken, Broken{seq, e.Index, "was ended though a claim had let it go"})
	}
	l.end(seq, e)
}

// Expire notes that a message was given up because its time was over.
func (l *Log) Expire(seq, index uint64) {
	if !l.hasExpired(l.Accepted[seq]) {
		l.ids.broken = append(l.ids.broken, Broken{seq, index, "was given up before it expired"})
	}
	l.end(seq, Ending{Expired: true, Index: index})
}

func (l *Log) end(seq uint64, e Ending) {
	if l.ids.ended == nil {
		l.ids.ended = make(map[uint64]Ending)
	}
	if _, known := l.ids.ended[seq]; !known {
		l.ids.ended[seq] = e
	}
	l.Kill(seq, seq)
}

// Deny notes that the log knows of no message with that id that could be ended, or not of the one of that seq,
// unless it is 0.
func (l *Log) Deny(id ID, seq, index uint64) {
	for _, waits := range l.ids.waits[id] {
		if (seq == 0 || waits == seq) && l.isFree(waits) {
			l.ids.broken = append(l.ids.broken, Broken{waits, index, "was not found, or said to have gone, while it could be ended"})
		}
	}
}

// Refuse notes that a record had no effect, since its condition did not hold.
func (l *Log) Refuse(id Identity) {
	if l.ids.refused == nil {
		l.ids.refused = make(map[Identity]bool)
	}
	l.ids.refused[id] = true
}

// sendID notes a message that nothing may try to deliver any more.
func (l *Log) sendID(s Sending) {
	if a := l.Accepted[s.Seq]; a.Expires > 0 && a.Expires <= s.At.UnixMilli() {
		l.ids.late = append(l.ids.late, s)
	}
}

// endedOf returns how many messages of a record the log has ended, or not let begin.
func (j *judge) endedOf(id Identity) int {
	n := j.ended[id]
	if j.Log.ids.refused[id] {
		n++
	}
	return n
}

// countEnded returns by record how many of its messages the log has ended, and put no other one of it in their
// place.
func (l *Log) countEnded() map[Identity]int {
	counts := make(map[Identity]int)
	for seq, e := range l.ids.ended {
		if e.By == 0 {
			counts[l.Accepted[seq].Identity]++
		}
	}
	return counts
}

// checkEnded holds the rules against the log and what came out.
func (j *judge) checkEnded() {
	for _, b := range j.Log.ids.broken {
		a := j.Log.Accepted[b.Seq]
		j.problem("ended", "%s for %s, due %d, seq %d, id %q: by log entry %d it %s", a.Origin, a.Target, a.Due, b.Seq, a.ID.Text, b.Index, b.Text)
	}
	for _, d := range j.Deliveries {
		if e, ended := j.Log.ids.ended[d.Seq]; ended && d.Seq != 0 && !e.Expired {
			j.problem("ended", "%s for %s, due %d, seq %d, was ended by log entry %d and delivered at %v", d.Origin, d.Topic, d.Due, d.Seq, e.Index, d.At.Sub(j.Begin))
		}
	}
	for _, s := range j.Log.ids.late {
		a := j.Log.Accepted[s.Seq]
		behind, _ := j.wrongOf(s.Node, s.At, s.At)
		// Times of the clock and of the header are cut to milliseconds.
		if by := s.At.Sub(time.UnixMilli(a.Expires)) + min(behind, 0); by > time.Millisecond {
			j.problem("expired", "%s for %s, seq %d, was sent by %s at %v, and expired %v before", a.Origin, a.Target, s.Seq, s.Node, s.At.Sub(j.Begin), by)
		}
	}
}
