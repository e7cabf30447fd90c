package schedule

import "github.com/carillonmq/carillon/storage"

const (
	// MostHanded is how many messages of one target the publisher may have, as
	// references: enough to keep it busy while the next page is read.
	MostHanded = 8192
	// mostHandedAll is what it may have of all together, about 100 bytes each. Whoever
	// wants more may have a quarter of what is left, so that however many slow targets
	// keep much of it, there is something for the next one.
	mostHandedAll = 16 * MostHanded
	// leastHanded is what any target may have whatever the others keep.
	leastHanded = 16
	// looksAtFull is how many full targets are looked at in a pass: most get room by their
	// own Acks, but what a target may have also grows when others keep less.
	looksAtFull = 8
)

// allowance is how many messages of one target the publisher may have now.
func (s *Scheduler) allowance() int {
	left := mostHandedAll - s.window.handed
	return min(MostHanded, max(leastHanded, left/4))
}

// hasRoomAgain reports whether a target that was full may have a good deal more.
func (s *Scheduler) hasRoomAgain(t *target) bool {
	allowance := s.allowance()
	return t.handed <= allowance-allowance/4
}

// sweep reads one page of storage for all targets that catch up, and reports whether it
// did. It goes like a lift: always up, from the lowest mark of those that have room.
// Others board where it passes their marks; who is full gets off, keeps the place as
// its mark, and is taken along by the next sweep once there is room. At the frontier
// all that ride flow again. So a page is read once for all who want something of it,
// and however many targets there are, a backlog is read as often as the fullest
// of them has to get off.
//
//	          mark of B            C gets off: its mark
//	------------|------------------------|-------------------> frontier
//	  A, C ride | A, B, C ride           | A, B ride           A, B flow
//
// What is due goes to the publisher, what is due later to the wheel. It runs when fire
// has nothing more to hand over by limit, so for those that ride nothing overtakes what
// the wheel has of them from before.
func (s *Scheduler) sweep(limit int64) (read bool, err error) {
	s.lookAtFull()
	s.beginSweep()
	ts := &s.targets
	if len(ts.riders) == 0 && !s.boardsNext(s.window.frontier) {
		return false, nil
	}
	from := ts.swept
	wanted := func(name string) bool {
		t, known := ts.byName[name]
		return known && (t.flow == riding || ts.hungry.has(t) && t.round == ts.round)
	}
	items, next, done, err := s.cfg.Store.Scan(from, PageSize, wanted, s.items[:0])
	if err != nil {
		return false, err
	}
	s.items = items
	if done {
		next = endOfSchedule
	}
	end := least(next, s.window.frontier)
	for s.boardsNext(end) {
		ts.move(ts.hungry.targets[0], riding, ts.hungry.targets[0].mark)
	}
	if err := s.takeSwept(items, end, limit); err != nil {
		return false, err
	}
	ts.swept = end
	if end == s.window.frontier {
		s.alight()
	}
	return true, nil
}

// alight has all that ride flow: they were read up to the frontier.
func (s *Scheduler) alight() {
	for t := range s.targets.riders {
		s.targets.move(t, flowing, storage.Ref{})
	}
}

// beginSweep starts a sweep when nobody rides any more. Who has come to the frontier,
// which moves back at times, has nothing to catch up with.
func (s *Scheduler) beginSweep() {
	ts := &s.targets
	if !ts.swept.Less(s.window.frontier) {
		s.alight()
	}
	for len(ts.riders) == 0 && len(ts.hungry.targets) > 0 {
		first := ts.hungry.targets[0]
		if first.mark.Less(s.window.frontier) {
			ts.round, ts.swept = first.round, first.mark
			return
		}
		ts.move(first, flowing, storage.Ref{})
	}
}

// boardsNext reports whether the sweep takes another target along before it comes to end.
func (s *Scheduler) boardsNext(end storage.Ref) bool {
	hungry := s.targets.hungry.targets
	return len(hungry) > 0 && hungry[0].round == s.targets.round && hungry[0].mark.Less(end)
}

// takeSwept takes in what was read for those that ride, up to end.
func (s *Scheduler) takeSwept(items []storage.Item, end storage.Ref, limit int64) error {
	var due []DueMessage
	allowance := s.allowance()
	for _, item := range items {
		if !item.Ref.Less(end) {
			break
		}
		t, known := s.targets.byName[item.Target]
		if !known || t.flow != riding || item.Ref.Less(t.mark) {
			continue
		}
		m, kept := s.window.kept[item.Seq]
		switch {
		case kept && m.handed:
		case item.Due > limit && kept:
		case item.Due > limit:
			if err := s.add(t, item.Ref); err != nil {
				return err
			}
		case t.handed < allowance:
			due = append(due, s.hand(t, item.Ref))
		default:
			if kept {
				s.drop(item.Seq)
			}
			s.targets.move(t, waiting, item.Ref)
		}
	}
	s.publish(due)
	return nil
}

// lookAtFull finds some of the targets that have room because others keep less.
func (s *Scheduler) lookAtFull() {
	looks := looksAtFull
	for t := range s.targets.full {
		if looks--; looks < 0 {
			return
		}
		if s.hasRoomAgain(t) {
			s.targets.feed(t)
		}
	}
}
