package broker

import (
	"slices"

	"github.com/carillonmq/carillon/storage"
)

// fire hands over what is due and claimed, one batch of the wheel, and reports
// whether there is more to hand over now.
func (s *scheduler) fire() (more bool) {
	ripe, more := s.window.ripen()
	limit := s.limit()
	var due []dueMessage
	n := 0
	for ; n < len(ripe) && int64(ripe[n].When) <= limit; n++ {
		ref := storage.Ref{Due: int64(ripe[n].When), Seq: ripe[n].Value.seq}
		if h, held := s.window.held[ref.Seq]; !held || h.handed {
			continue // killed meanwhile, or handed over while catching up
		}
		t := s.targets[ripe[n].Value.target]
		switch {
		case t.flow != flowing:
			s.leaveInStorage(t, ref)
		case t.handed >= mostHanded:
			s.stop(t, catchingUp, s.window.frontier)
			s.leaveInStorage(t, ref)
		default:
			due = append(due, s.hand(t, ref))
		}
	}
	waiting := n < len(ripe)
	s.window.take(n)
	if len(due) > 0 {
		s.claims.lastFired = s.now()
		s.cfg.Publisher.hand(due)
	}
	return more && !waiting
}

// leaveInStorage lets go of a message of a target that does not flow.
func (s *scheduler) leaveInStorage(t *target, ref storage.Ref) {
	s.window.drop(ref.Seq)
	t.wait(ref)
}

func (s *scheduler) hand(t *target, ref storage.Ref) dueMessage {
	s.window.hand(ref, t.index)
	t.handed++
	return dueMessage{Ref: ref, Target: t.name}
}

// fill reads one page into the window if there is room, and one page of one target
// that catches up: whichever, in turn by chance, so that many of them do not keep
// what is due from the others. It reports whether it read anything.
func (s *scheduler) fill() (loaded bool, err error) {
	if s.window.wantsMore() {
		if err := s.load(); err != nil {
			return false, err
		}
		loaded = true
	}
	for t := range s.stopped {
		if t.flow == catchingUp && t.handed <= mostHanded-pageSize {
			return true, s.catchUp(t)
		}
	}
	if !loaded && !s.search.isOver() {
		return true, s.searchOn()
	}
	return loaded, nil
}

// load moves the frontier on by one page. Targets that do not flow are passed
// over: their marks are before the frontier, and catching up reads from there.
func (s *scheduler) load() error {
	flows := func(name string) bool {
		t, ok := s.byName[name]
		return !ok || t.flow == flowing
	}
	items, next, done, err := s.cfg.Store.Scan(s.window.frontier, pageSize, flows, s.items[:0])
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, held := s.window.held[item.Seq]; held {
			continue
		}
		if err := s.window.add(item.Ref, s.target(item.Target).index); err != nil {
			return err
		}
	}
	s.items = items
	s.window.frontier = next
	if done {
		s.window.frontier = endOfSchedule
	}
	return nil
}

// catchUp reads one page of a target from its mark on. What is due goes to the
// publisher in order of delivery, what is due later to the wheel. The target flows
// again when the page ends at the frontier: then everything before the frontier is
// held, as for every target that flows.
func (s *scheduler) catchUp(t *target) error {
	only := func(name string) bool { return name == t.name }
	items, next, done, err := s.cfg.Store.Scan(t.mark, mostHanded-t.handed, only, s.items[:0])
	if err != nil {
		return err
	}
	s.items = items
	limit := s.limit()
	var due []dueMessage
	for _, item := range items {
		if item.Ref.Compare(s.window.frontier) >= 0 {
			break
		}
		h, held := s.window.held[item.Seq]
		switch {
		case held && h.handed:
		case item.Due <= limit:
			due = append(due, s.hand(t, item.Ref))
		case !held:
			if err := s.window.add(item.Ref, t.index); err != nil {
				return err
			}
		}
	}
	t.mark = next
	if done || next.Compare(s.window.frontier) >= 0 {
		t.flow = flowing
		delete(s.stopped, t)
	}
	if len(due) > 0 {
		s.claims.lastFired = s.now()
		s.cfg.Publisher.hand(due)
	}
	return nil
}

// stop ends a target's flow; what of it is not held waits from ref on.
func (s *scheduler) stop(t *target, how flow, ref storage.Ref) {
	t.stop(how, ref)
	s.stopped[t] = struct{}{}
}

// takeVerdicts hears from the publisher which targets are stuck and which healed.
func (s *scheduler) takeVerdicts() {
	verdicts := s.cfg.Verdicts.Take(nil)
	if len(verdicts) > 0 {
		defer s.reportParked()
	}
	for _, v := range verdicts {
		t := s.target(v.Target)
		if !v.Parked {
			t.healed = true
			continue
		}
		t.through = s.claims.committed.Through
		t.healed = false
		// Some may still be on their way to the lane, and come back with a later
		// verdict; others are delivered and their Ack is not applied. A term that
		// reads from here finds them all.
		s.stop(t, parked, s.window.lowestOf(t.index))
		for _, ref := range v.Returned {
			// What was acknowledged meanwhile is not held any more.
			if h, held := s.window.held[ref.Seq]; held && h.handed {
				t.handed--
				s.leaveInStorage(t, ref)
			}
		}
		// The publisher feeds it again only when it knows that we have taken it back.
		s.cfg.Publisher.probe(t.name)
	}
}

// release feeds healed targets again whose hold no committed claim has any more,
// nor one that is on its way.
func (s *scheduler) release() {
	if !s.claims.isSettled() {
		return
	}
	for t := range s.stopped {
		if t.flow == parked && t.healed && !s.claims.holds(t.name) {
			t.flow = catchingUp
		}
	}
}

func (s *scheduler) reportParked() {
	var names []string
	for t := range s.stopped {
		if t.flow == parked && !t.healed {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	s.cfg.Report.setParked(names)
}
