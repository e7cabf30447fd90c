package schedule

// takeVerdicts hears from the publisher which targets are stuck and which healed.
func (s *Scheduler) takeVerdicts() {
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
func (s *Scheduler) park(v Verdict) {
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
		// What was acknowledged meanwhile is not kept any more.
		if s.window.kept[ref.Seq].handed {
			s.leaveInStorage(t, ref)
		}
	}
	// The publisher feeds it again only when it knows that we have taken it back.
	s.cfg.Publisher.Probe(t.name)
}

// release has a healed target fed again, unless the committed claim holds it, or one
// that is on its way may.
func (s *Scheduler) release(t *target) {
	if t.flow == healed && !t.held && !t.pending {
		s.targets.move(t, waiting, t.mark)
		s.targets.feed(t)
	}
}
