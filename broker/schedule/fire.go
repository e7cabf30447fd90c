package schedule

import "github.com/carillonmq/carillon/storage"

// fire hands over what is due by limit, one batch of the wheel, and reports
// whether there is more to hand over now.
func (s *Scheduler) fire(limit int64) (more bool) {
	ripe, more := s.window.ripen()
	var due []DueMessage
	n := 0
	for ; n < len(ripe) && int64(ripe[n].When) <= limit; n++ {
		ref := storage.Ref{Due: int64(ripe[n].When), Seq: ripe[n].Value.seq}
		m, kept := s.window.kept[ref.Seq]
		if !kept || m.handed {
			continue // killed meanwhile, or handed over while catching up
		}
		t := s.targets.byIndex[m.target]
		switch {
		case t.hasOwnMark() || !ref.Less(s.reach(t)):
			s.leaveInStorage(t, ref)
		case t.handed >= s.allowance():
			s.drop(ref.Seq)
			s.targets.move(t, waiting, ref)
		default:
			due = append(due, s.hand(t, ref))
		}
	}
	unclaimed := n < len(ripe)
	s.window.take(n)
	s.publish(due)
	return more && !unclaimed
}

// leaveInStorage lets go of a message that is to be read again: its target does not
// flow, or rides and the sweep has not come to it.
func (s *Scheduler) leaveInStorage(t *target, ref storage.Ref) {
	s.drop(ref.Seq)
	if t.hasOwnMark() {
		s.targets.lower(t, ref)
	}
}

// hand notes that the publisher gets the message.
func (s *Scheduler) hand(t *target, ref storage.Ref) DueMessage {
	if s.window.hand(ref, t.index) {
		t.kept++
	}
	t.handed++
	if len(t.out) > 2*t.handed {
		t.out = s.stillOut(t)
	}
	t.out = append(t.out, ref)
	return DueMessage{Ref: ref, Target: t.name}
}

// stillOut returns what the publisher still has of the target.
func (s *Scheduler) stillOut(t *target) []storage.Ref {
	out := t.out[:0]
	for _, ref := range t.out {
		if s.window.kept[ref.Seq].handed {
			out = append(out, ref)
		}
	}
	return out
}

func (s *Scheduler) publish(due []DueMessage) {
	if len(due) > 0 {
		s.claims.lastFired = s.now()
		s.cfg.Publisher.Hand(due)
	}
}
