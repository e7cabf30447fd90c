package broker

import "github.com/carillonmq/carillon/storage"

// fire hands over what is due by limit, one batch of the wheel, and reports
// whether there is more to hand over now.
func (s *scheduler) fire(limit int64) (more bool) {
	ripe, more := s.window.ripen()
	var due []dueMessage
	n := 0
	for ; n < len(ripe) && int64(ripe[n].When) <= limit; n++ {
		ref := storage.Ref{Due: int64(ripe[n].When), Seq: ripe[n].Value.seq}
		h, held := s.window.held[ref.Seq]
		if !held || h.handed {
			continue // killed meanwhile, or handed over while catching up
		}
		t := s.targets.byIndex[h.target]
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
	s.handOver(due)
	return more && !unclaimed
}

// leaveInStorage lets go of a message that is to be read again: its target does not
// flow, or rides and the sweep has not come to it.
func (s *scheduler) leaveInStorage(t *target, ref storage.Ref) {
	s.drop(ref.Seq)
	if t.hasOwnMark() {
		s.targets.lower(t, ref)
	}
}

// hand notes that the publisher gets the message.
func (s *scheduler) hand(t *target, ref storage.Ref) dueMessage {
	if s.window.hand(ref, t.index) {
		t.kept++
	}
	t.handed++
	if len(t.out) > 2*t.handed {
		t.out = s.stillOut(t)
	}
	t.out = append(t.out, ref)
	return dueMessage{Ref: ref, Target: t.name}
}

// stillOut returns what the publisher still has of the target.
func (s *scheduler) stillOut(t *target) []storage.Ref {
	out := t.out[:0]
	for _, ref := range t.out {
		if s.window.held[ref.Seq].handed {
			out = append(out, ref)
		}
	}
	return out
}

func (s *scheduler) handOver(due []dueMessage) {
	if len(due) > 0 {
		s.claims.lastFired = s.now()
		s.cfg.Publisher.hand(due)
	}
}

// fill reads one page into the window if there is room, and reports whether it did.
// Targets that do not flow are passed over: the reach of each is before the frontier,
// or what is accepted before it lowers it (accept).
func (s *scheduler) fill() (loaded bool, err error) {
	if !s.window.wantsMore() {
		return false, nil
	}
	flows := func(name string) bool {
		t, known := s.targets.byName[name]
		return !known || t.flow == flowing
	}
	items, next, done, err := s.cfg.Store.Scan(s.window.frontier, pageSize, flows, s.items[:0])
	if err != nil {
		return false, err
	}
	s.items = items
	for _, item := range items {
		if _, held := s.window.held[item.Seq]; held {
			continue
		}
		if err := s.add(s.targets.get(item.Target), item.Ref); err != nil {
			return false, err
		}
	}
	s.window.frontier = next
	if done {
		s.window.frontier = endOfSchedule
	}
	return true, nil
}

// takeVerdicts hears from the publisher which targets are stuck and which healed.
func (s *scheduler) takeVerdicts() {
	for _, v := range s.cfg.Verdicts.Take(nil) {
		if v.Parked {
			s.park(v)
		} else if t, known := s.targets.byName[v.Target]; known && t.flow == parked {
			s.cfg.Report.SetParked(t.name, false)
			s.targets.move(t, healed, t.mark)
			s.release(t)
		}
	}
}

// park takes back what the publisher returns of a target that is stuck.
func (s *scheduler) park(v verdict) {
	t := s.targets.get(v.Target)
	if t.flow != parked {
		s.cfg.Report.SetParked(t.name, true)
		t.through = s.claims.committed.Through
		// Some may still be on their way to the lane, and come back with a later
		// verdict; others are delivered and their Ack is not applied. A term that
		// reads from here finds them all.
		low := least(s.reach(t), s.window.lowestAhead())
		for _, ref := range s.stillOut(t) {
			low = least(low, ref)
		}
		s.targets.move(t, parked, low)
	}
	for _, ref := range v.Returned {
		// What was acknowledged meanwhile is not held any more.
		if s.window.held[ref.Seq].handed {
			s.leaveInStorage(t, ref)
		}
	}
	// The publisher feeds it again only when it knows that we have taken it back.
	s.cfg.Publisher.probe(t.name)
}

// release has a healed target fed again, unless the committed claim holds it, or one
// that is on its way may.
func (s *scheduler) release(t *target) {
	if t.flow == healed && !t.held && !t.pending {
		s.targets.move(t, waiting, t.mark)
		s.targets.feed(t)
	}
}
