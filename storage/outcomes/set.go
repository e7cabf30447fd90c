package outcomes

import (
	"slices"

	"github.com/carillonmq/carillon/storage/name"
)

// A Set is the outcomes that are known, a list of each class. What is too old, or too much, is looked for in each
// list alone: so nobody who is refused often, or has many keys, makes others forget. It belongs to one goroutine;
// while nothing is added or forgotten, any may read.
type Set struct {
	keep  Keep
	lists [classes]list
}

// NewSet returns an empty one, which keeps DefaultKeep.
func NewSet() *Set {
	s := &Set{keep: DefaultKeep}
	for c := range s.lists {
		s.lists[c].targets = make(map[string]uint16)
	}
	return s
}

// Count returns how many outcomes are known, of all classes.
func (s *Set) Count() (n uint64) {
	for c := range s.lists {
		n += s.lists[c].count()
	}
	return n
}

// Since returns the time from which on all messages that have ended are known, epoch milliseconds; 0 when
// none was ever forgotten, or lacked. It says nothing of refusals and answers.
func (s *Set) Since() int64 { return s.lists[ends].since }

// Keep returns how long outcomes are known.
func (s *Set) Keep() Keep { return s.keep }

// Add puts an outcome behind all others of its class. What of it goes with another kind is left out.
func (s *Set) Add(o Outcome) {
	c := o.Kind.class()
	if c == refusals {
		o.Seq = s.lists[ends].next
	}
	s.lists[c].add(o)
}

// SetKeep changes how long outcomes are known. Forget goes by it.
func (s *Set) SetKeep(k Keep) {
	s.keep = Keep{For: max(k.For, 0), Count: min(k.Count, MaxCount)}
}

// Forget gives up the oldest outcomes beyond the bounds, most of each class at most, so that whoever
// waits does not wait long. now is the time by which they are old, epoch milliseconds.
func (s *Set) Forget(now int64, most int) {
	for c := range s.lists {
		s.lists[c].forget(now-s.keep.For, s.keep.most(class(c)), most)
	}
}

// Lack says that of the messages that ended before the time, epoch milliseconds, some were never added.
func (s *Set) Lack(before int64) { s.lists[ends].since = max(s.lists[ends].since, before) }

// Newest returns what became of the newest message of an id, which is the one with the highest
// seq: one that was on its way may have ended after it.
func (s *Set) Newest(id name.Hash) (Outcome, bool) {
	l := &s.lists[ends]
	at, ok := l.highest(id)
	if !ok {
		return Outcome{}, false
	}
	return l.outcome(at), l.row(at).seq > 0 // 0: refused, by a program of before (DESIGN.md, the formats)
}

// StrikeEnded makes fresh[i] false where something is known of what ended with the id names[i].
func (s *Set) StrikeEnded(names []name.Hash, fresh []bool) {
	l := &s.lists[ends]
	if l.count() == 0 {
		return
	}
	for i := range names {
		if _, known := l.find(names[i]); known {
			fresh[i] = false
		}
	}
}

// Answered returns what was answered to a key.
func (s *Set) Answered(key name.Hash) (Outcome, bool) {
	for _, c := range []class{answers, ends} { // of the ends, those of a program of before
		if at, ok := s.lists[c].find(key); ok && s.lists[c].row(at).kind == Answered {
			return s.lists[c].outcome(at), true
		}
	}
	return Outcome{}, false
}

// lifeMost bounds the answer of Life, and by that how long others wait for it.
const lifeMost = 1000

// Life returns the ends and the refusals that are known of an id, in the order in which they happened; of more
// than a thousand the last thousand.
func (s *Set) Life(id name.Hash) (life []Outcome) {
	ended, refused := &s.lists[ends], &s.lists[refusals]
	end, isEnd := ended.find(id)
	refusal, isRefusal := refused.find(id)
	for (isEnd || isRefusal) && len(life) < lifeMost {
		if isRefusal && (!isEnd || refused.row(refusal).seq > end) {
			life = append(life, refused.outcome(refusal))
			refusal, isRefusal = refused.back(refusal, refused.row(refusal).older)
			continue
		}
		life = append(life, ended.outcome(end))
		end, isEnd = ended.back(end, ended.row(end).older)
	}
	slices.Reverse(life)
	return life
}
