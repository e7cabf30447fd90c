package storage

import (
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/carillonmq/carillon/storage/segment"
)

type (
	// Ref names one message and its place in the order of delivery.
	Ref = segment.Ref

	// Entry is one message of the schedule.
	Entry = segment.Entry
)

// SeqRun is the seqs First to Last, both included.
type SeqRun struct{ First, Last uint64 }

// Accept adds entries, gives each its Seq (dense, in order), and lowers the marks
// that cover an entry when it lies below them. It returns the
// first seq given. Bodies and ids are kept, not copied. An entry with an ID can be looked up
// from then on; below LevelThree none has a Topic, an ID or an Expires. Called by the writer.
func (s *Store) Accept(es []Entry) (first uint64) {
	s.change()
	defer s.mu.Unlock()
	first = s.values.nextSeq
	for i := range es {
		e := &es[i]
		e.Seq = first + uint64(i)
		if s.values.lower(e) {
			s.claimVersion++
		}
		s.table.Add(e)
	}
	s.values.nextSeq += uint64(len(es))
	s.alive.AddRange(first, s.values.nextSeq-1)
	return first
}

// Kill marks the runs as no longer pending and returns how many messages that
// were alive it ended: a dead seq, or one not given yet, is passed over. Called
// by the writer.
func (s *Store) Kill(runs []SeqRun) (killed uint64) {
	s.change()
	defer s.mu.Unlock()
	for _, run := range runs {
		run.First, run.Last = max(run.First, 1), min(run.Last, s.values.nextSeq-1)
		if run.First > run.Last {
			continue
		}
		killed += s.alive.RemoveRange(run.First, run.Last)
		s.table.Remove(run.First, run.Last)
		if s.values.lost.Count() > 0 {
			s.values.lost.RemoveRange(run.First, run.Last)
		}
	}
	return killed
}

// MovedEarlier notes that a message without an id takes the place of one that is due later. Who reads all that is pending
// page by page may have passed that place, and sees in the pages' moments that it may. Called by the writer.
func (s *Store) MovedEarlier() {
	s.change()
	defer s.mu.Unlock()
	s.earlier++
}

// SetPosition records how far a source partition has been ingested. Called by
// the writer.
func (s *Store) SetPosition(p Position) {
	s.change()
	defer s.mu.Unlock()
	s.values.positions[partitionKey{p.TopicID, p.Partition}] = p
}

// SetClaim replaces the claim with its marks and all holds. Called by the writer.
func (s *Store) SetClaim(c Claim) {
	s.change()
	defer s.mu.Unlock()
	s.values.holds = newHolds()
	for _, h := range c.Holds {
		s.values.holds.set(h)
	}
	s.setClaim(c)
}

// ChangeClaim replaces the claim with its mark, and the holds that c names; what was
// fresh is not any more. From LevelThree on no hold of a target falls: to set it again lets go what
// is due by the Through that c has (claimed.go). It costs as much as there are of these, times what is
// held of delay topics. Called by the writer.
func (s *Store) ChangeClaim(c ClaimChange) {
	s.change()
	defer s.mu.Unlock()
	var pairings []pairing
	if len(c.Set)+len(c.Lift) > 0 {
		pairings = s.values.pairings()
	}
	s.values.changeTopics(&c, pairings)
	for _, target := range c.Lift {
		s.values.liftHold(pairings, target)
	}
	for _, h := range c.Set {
		h.Target = s.table.KeptTarget(h.Target) // most targets that are parked have just been accepted for
		s.values.setHold(pairings, h)
	}
	s.setClaim(Claim{Through: c.Through, Mark: c.Mark})
}

// setClaim is called with mu held, and leaves the holds as they are.
func (s *Store) setClaim(c Claim) {
	c.Holds = nil
	if now := &s.values.claim; now.Through != c.Through || now.Mark != c.Mark {
		s.claimVersion++
	}
	s.values.claim = c
}

// RaiseClaim raises the claim's Through to ms; an earlier time is passed over.
// Called by the writer.
func (s *Store) RaiseClaim(ms int64) {
	s.change()
	defer s.mu.Unlock()
	if ms > s.values.claim.Through {
		s.values.claim.Through = ms
		s.claimVersion++
	}
}

// Pause holds from now on what p names: nothing of it that is not claimed at this moment will be before it
// is resumed, be it due already, taken in later, or released by another hold (see Claimed). It reports whether that was not paused
// already, in which case nothing changes. Called by the writer, from LevelThree on.
func (s *Store) Pause(p pause.Pause) (changed bool) {
	s.change()
	defer s.mu.Unlock()
	if s.values.pauses.Has(p.Kind, p.Name) {
		return false
	}
	s.values.pause(p)
	return true
}

// Resume ends a pause and reports whether there was one. Its hold stays until a claim lifts it; what
// is due by that hold, and was kept back by the pause alone, is claimed. That of a delay topic costs as
// much as targets are held.
// Called by the writer.
func (s *Store) Resume(kind pause.Kind, name string) (changed bool) {
	s.change()
	defer s.mu.Unlock()
	if changed = s.values.pauses.Has(kind, name); changed {
		s.values.resume(kind, name)
	}
	return changed
}

// MarkReplayed marks the dead letter at the offset as replayed, and forgets the marks of its partition
// below first. Called by the writer, from LevelFour on.
func (s *Store) MarkReplayed(at replayed.Partition, offset, first int64) {
	s.change()
	defer s.mu.Unlock()
	s.values.replayed.Add(at, offset, first)
}

// StartBulk begins an operation on messages that have a seq by now, and returns its id; false if as many
// run as may. Of o What, Who and Started count. Called by the writer, from LevelFour on.
func (s *Store) StartBulk(o bulk.Operation) (id uint64, ok bool) {
	s.change()
	defer s.mu.Unlock()
	o.UpperSeq = s.values.nextSeq - 1
	s.values.bulks, ok = s.values.bulks.Start(o)
	return s.values.bulks.Started(), ok
}

// SetBulk puts the operation, which runs, into the place of the one with its ID. Called by the writer.
func (s *Store) SetBulk(o bulk.Operation) {
	s.change()
	defer s.mu.Unlock()
	s.values.bulks = s.values.bulks.With(o)
}

// SetTime raises the schedule's time to ms; an earlier time is passed over. It forgets
// outcomes, and operations that have ended, that are too old by then. Called by the writer.
func (s *Store) SetTime(ms int64) {
	s.change()
	defer s.mu.Unlock()
	s.values.time = max(s.values.time, ms)
	s.outcomes.Forget(s.values.time, forgetPerTime)
	s.values.bulks = s.values.bulks.Forget(s.values.time)
}

// How many outcomes of each class are forgotten in one step at most. A step takes no time that others
// notice, and all nodes take the same: when a day's worth is too old at once, it goes in the
// steps to come, and is known until then. One that ends makes way for itself and one more.
const (
	forgetPerTime = 1000
	forgetPerEnd  = 2
)

// End keeps what became of a message that was given an id, from LevelThree on, or that an operation was refused,
// or what was answered to a key. Kill ends the message itself. Called by the writer.
func (s *Store) End(o outcomes.Outcome) {
	s.change()
	defer s.mu.Unlock()
	s.outcomes.Add(o)
	s.outcomes.Forget(s.values.time, forgetPerEnd)
}

// KeepOutcomes says how many outcomes are known, and how long, from LevelThree on: SetTime and
// End go by it. Called by the writer.
func (s *Store) KeepOutcomes(k outcomes.Keep) {
	s.change()
	defer s.mu.Unlock()
	s.outcomes.SetKeep(k)
}

// Found records the cluster's identity and delivery mode. Called by the writer.
func (s *Store) Found(clusterID [16]byte, mode string) {
	s.change()
	defer s.mu.Unlock()
	s.values.clusterID, s.values.mode = clusterID, mode
}

// SetSurveyed records that the first discovery of source topics is done. Called
// by the writer.
func (s *Store) SetSurveyed() {
	s.change()
	defer s.mu.Unlock()
	s.values.surveyed = true
}

// Applied records the log entry that memory now stands for. Called by the
// writer, after the entry's other calls.
func (s *Store) Applied(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values.appliedIndex = index
	s.midway = false
	if s.whole != nil {
		close(s.whole)
		s.whole = nil
	}
}

// change locks mu for a change by the writer, which leaves a command half carried out until Applied.
func (s *Store) change() {
	s.mu.Lock()
	s.midway = true
}
