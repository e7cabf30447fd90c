package storage

import (
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
)

// Found is a message that an id stands for.
type Found struct {
	Ref
	Target  string
	Topic   string // the delay topic that its entry tells; "" if OpenIDs has named it: no hold of a topic covers it
	Expires int64  // epoch milliseconds; 0: never
}

// IDsOpen reports whether every message that is pending can be looked up by its id.
func (s *Store) IDsOpen() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.idsOpen
}

// OpenIDs makes messages that were accepted before LevelThree known by their ids; those that are
// dead are passed over. Of several with one id, told now or before, the newest that is alive has it, and
// the others have lost it for good. upTo says that all with a seq of upTo or below were told, now or before:
// once that is every message there is, the ids are open, and stay so. If there was one before, OutcomesSince
// is not below the present then. Called by the writer, at
// LevelThree. The error is that of a look-up: then half of it may be done.
func (s *Store) OpenIDs(messages []Named, upTo uint64) (open bool, err error) {
	for i := range messages {
		n := &messages[i]
		h := name.Of(n.Topic, n.ID)
		found, _, err := s.lookUp(h, n.Topic, n.ID)
		if err != nil {
			return false, fmt.Errorf("open ids: %w", err)
		}
		s.open(n, h, found.Seq)
	}
	s.change()
	defer s.mu.Unlock()
	if upTo >= s.values.nextSeq-1 && !s.values.idsOpen {
		s.values.idsOpen = true
		if s.values.nextSeq > 1 { // of what has ended before LevelThree nothing was kept
			s.outcomes.Lack(s.values.time + 1)
		}
	}
	return s.values.idsOpen, nil
}

// open gives the message its id, which stands for the one of that seq so far, 0: for none. The older of the
// two has lost it.
func (s *Store) open(n *Named, h name.Hash, before uint64) {
	s.change()
	defer s.mu.Unlock()
	switch {
	case !s.hasName(n.Seq) || before == n.Seq: // dead, or told before
	case before > n.Seq:
		s.values.lost.Add(n.Seq)
	default:
		if before != 0 {
			s.values.lost.Add(before)
		}
		s.table.AddForeign(name.Row{
			Hash: h, Seq: n.Seq, Due: n.Due, Expires: n.Expires, Target: s.table.KeptTarget(n.Target), Foreign: true,
		})
	}
}

// hasName reports whether the message is alive and has not lost its id. The caller holds mu.
func (s *Store) hasName(seq uint64) bool {
	return s.alive.Contains(seq) && !s.values.lost.Contains(seq)
}

// Time returns the schedule's time: the highest of a leader's that SetTime was given, epoch
// milliseconds.
func (s *Store) Time() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.time
}

// NextSeq returns the seq that the next message will have.
func (s *Store) NextSeq() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.nextSeq
}

// Lookup returns the newest message alive that has the id in its delay topic, and has not lost it
// (OpenIDs), false when there is none. It is the same on every node that has applied the same commands, whatever each has
// flushed, merged or received. The writer sees what it has accepted and killed so far. It may
// wait for the disk, whose error is returned: then it is not known whether there is one.
func (s *Store) Lookup(topic, id string) (Found, bool, error) {
	return s.lookUp(name.Of(topic, id), topic, id)
}

// Newest returns what Lookup does of the entry's topic and id, Seq 0 when there is none, and the newest with
// this id that has ended and is known, likewise. Called by the writer.
func (s *Store) Newest(e *Entry) (Found, outcomes.Outcome, error) {
	h := e.Hash()
	found, _, err := s.lookUp(h, e.Topic, e.ID)
	if err != nil {
		return Found{}, outcomes.Outcome{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	ended, _ := s.outcomes.Newest(h)
	return found, ended, nil
}

// Fresh appends to fresh for each of the names whether it is new: Newest would find nothing alive and nothing
// ended, and does so until an entry with this name is accepted or an outcome of it is kept. Where it says false, Newest
// may still find nothing, and on another node it may say true. It reads no disk, and asks one thing after the
// other of all names: what is read for one does not depend on another, so the processor waits for memory
// once and not for each name. Called by the writer.
func (s *Store) Fresh(names []name.Hash, fresh []bool) []bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := len(fresh)
	fresh = slices.Grow(fresh, len(names))[:from+len(names)]
	told := fresh[from:]
	for i := range told {
		told[i] = true
	}
	for _, t := range s.tables() {
		t.StrikeKnown(names, told)
	}
	for _, g := range s.segments {
		g.StrikeNamed(names, told)
	}
	s.outcomes.StrikeEnded(names, told)
	return fresh
}

func (s *Store) lookUp(h name.Hash, topic, id string) (Found, bool, error) {
	for {
		l := s.lookInMemory(h)
		if l.asked > manyAsked {
			s.mu.Lock()
			s.table.SkipDead(h)
			s.mu.Unlock()
		}
		if len(l.segments) == 0 { // all was looked at in one moment
			return l.result(topic), l.found, nil
		}
		err := l.searchSegments()
		segment.ReleaseAll(l.segments)
		if err != nil {
			return Found{}, false, fmt.Errorf("look up %q in %s: %w", id, topic, err)
		}
		if s.stillTrue(&l) {
			return l.result(topic), l.found, nil
		}
	}
}

// manyAsked is how many messages of a name memory may be asked about before those that are dead are skipped.
const manyAsked = 16

// A lookup is what is known so far of the newest message with a name.
type lookup struct {
	store    *Store
	hash     name.Hash
	best     name.Row
	found    bool
	inMemory uint64             // the seq that memory had for the name, 0: none
	asked    int                // messages in memory that were looked at
	seen     []*segment.Segment // the store's
	segments []*segment.Segment // pinned: those that may have a newer one, the newest first
}

func (l *lookup) result(topic string) Found {
	if !l.found || l.best.Foreign {
		topic = ""
	}
	return Found{Ref: Ref{Due: l.best.Due, Seq: l.best.Seq}, Target: l.best.Target, Topic: topic, Expires: l.best.Expires}
}

// lookInMemory looks at the tables and at the filters of segments.
func (s *Store) lookInMemory(h name.Hash) lookup {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := lookup{store: s, hash: h, seen: s.segments}
	l.best, l.found, l.asked = s.findInTables(h)
	l.inMemory = l.best.Seq
	for _, g := range slices.Backward(s.segments) {
		if g.Info.Last <= l.best.Seq {
			break
		}
		if g.MayName(h) {
			l.segments = append(l.segments, g)
		}
	}
	segment.AcquireAll(l.segments)
	return l
}

// findInTables returns the newest message alive that memory has for the name, and how many it looked at in the table that takes
// what comes: one that is being flushed is not changed, so there the dead are looked at until it is. The caller holds mu.
func (s *Store) findInTables(h name.Hash) (best name.Row, found bool, asked int) {
	for _, t := range s.tables() {
		r, ok, n := t.Find(h, s.hasName)
		if asked = n; ok && r.Seq > best.Seq { // the last one takes what comes
			best, found = r, true
		}
	}
	return best, found, asked
}

// searchSegments reads the rows of the name. A segment has none of a seq above its last.
func (l *lookup) searchSegments() error {
	for _, g := range l.segments {
		if g.Info.Last <= l.best.Seq {
			return nil
		}
		r, ok, err := g.FindName(l.hash, l.store.named)
		if err != nil {
			return err
		}
		if ok && r.Seq > l.best.Seq {
			l.best, l.found = r, true
		}
	}
	return nil
}

func (s *Store) named(seq uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.hasName(seq)
}

// stillTrue reports whether what was found is so at this moment. To the writer it always is; to
// others a message may have come, gone, or moved from memory to disk since they looked at memory.
func (s *Store) stillTrue(l *lookup) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now, _, _ := s.findInTables(l.hash)
	return now.Seq == l.inMemory && slices.Equal(s.segments, l.seen) && (!l.found || s.hasName(l.best.Seq))
}
