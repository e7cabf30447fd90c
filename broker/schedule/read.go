package schedule

import (
	"time"

	"github.com/carillonmq/carillon/storage"
)

// Storage is read in four ways, a page at a time: ahead of the clock for all that flow
// (load), from the marks on for those that catch up (sweep), for delay topics that are not paused any
// more (bringBack, topics.go), and once in the life of a process for what an earlier program left
// behind (search).

// load reads one page into the window if there is room, and reports whether it did.
// Targets that do not flow are passed over. That loses nothing: such a target is read from
// its own reach on, and what is accepted with a ref below that reach lowers it, or enters the
// window if the target catches up (accept).
func (s *Scheduler) load() (loaded bool, err error) {
	frontier, limit := s.targets.frontier, s.limit()
	if !s.window.wantsMore(frontier == endOfSchedule) {
		return false, nil
	}
	flows := func(at storage.Ref, topic, target string) bool {
		return s.targets.byName[target].isLoaded() && !s.topics.withholds(topic, target, at)
	}
	items, next, done, err := s.cfg.Store.Scan(frontier, storage.Ref{}, s.limits.Page, flows, s.items[:0])
	if err != nil {
		return false, err
	}
	s.items = items
	for _, item := range items {
		if _, kept := s.window.kept[item.Seq]; kept {
			continue
		}
		t := s.targets.get(item.Target)
		if t.state != flowing && item.Due <= limit {
			s.targets.leave(t, item.Ref) // the wheel would yield it at once
			continue
		}
		if err := s.add(t, item); err != nil {
			return false, err
		}
	}
	if done {
		next = endOfSchedule
	}
	s.targets.loaded(next)
	return true, nil
}

// sweep reads one page of storage for all targets that catch up, and reports whether it
// did. It always goes on, from the lowest mark of those that have room. Others join
// where it comes to their marks. Who is full stops, keeps the place as its mark, and
// joins the next sweep once there is room. At the frontier all that catch up flow again.
// So a page is read once for all that want something of it, and however many targets
// there are, a backlog is read as often as the fullest of them has to stop.
//
//	                mark of B              C is full: its mark
//	------------------|------------------------|-------------------> frontier
//	  A, C catch up   | A, B, C catch up       | A, B catch up       A, B flow
//
// What is due goes to the publisher, what is due later to the wheel. It runs when fire
// has nothing more to hand over by limit, so for those that catch up nothing overtakes
// what the wheel has of them from before.
func (s *Scheduler) sweep(limit int64) (read bool, err error) {
	s.lookAtFull()
	s.gather()
	s.beginSweep()
	ts := &s.targets
	if len(ts.in[catchingUp].targets) == 0 && (s.untilSweep() > 0 || !s.joinsBefore(ts.frontier)) {
		return false, nil
	}
	wanted := func(at storage.Ref, topic, target string) bool {
		t, known := ts.byName[target]
		return known && (t.state == catchingUp || t.state == queued && t.feeding.round == ts.round && !at.Less(t.mark)) && at.Less(t.end()) &&
			!s.topics.withholds(topic, target, at)
	}
	began := time.Now()
	items, next, done, err := s.cfg.Store.Scan(ts.swept, s.endOfSweep(), s.limits.Page, wanted, s.items[:0])
	if err != nil {
		return false, err
	}
	s.lastSweep.read(began)
	s.items = items
	if done {
		next = endOfSchedule
	}
	end := next.Min(ts.frontier)
	for s.joinsBefore(end) {
		ts.join(ts.in[queued].targets[0])
	}
	if err := s.takeSwept(items, end, limit); err != nil {
		return false, err
	}
	ts.sweepTo(end)
	s.endSweep()
	return true, nil
}

// beginSweep starts a sweep when nobody catches up any more. Who has come to the
// frontier, which moves back at times, has nothing to catch up with.
func (s *Scheduler) beginSweep() {
	ts := &s.targets
	s.endSweep()
	for len(ts.in[catchingUp].targets) == 0 && len(ts.in[queued].targets) > 0 {
		first := ts.in[queued].targets[0]
		switch {
		case !first.mark.Less(ts.frontier):
			ts.flow(first)
		case s.untilSweep() > 0:
			return
		default:
			s.gathering, s.lastSweep = time.Time{}, sweepTime{}
			ts.beginSweep(first)
			ts.join(first)
			return
		}
	}
}

const (
	// gatherFor is how long a sweep waits, from the first target on that comes back from being parked, for others that
	// do. Targets come back one after the other, when users resume them or Kafka answers for them, and each would have a
	// sweep of its own that reads what waits for all others: now there are twenty a second at most. What is read for them
	// has waited for longer, for seconds mostly.
	gatherFor = 50 * time.Millisecond
	// restsFor is how many times as long as the last sweep read, a sweep waits that less than half of those are to join
	// that may want it, while more and more are: each that is hungry would have a sweep of its own, which reads what
	// waits for a thousand others, and those that are by then share it. It waits no longer when none has become hungry
	// for a quarter as long as that sweep read: the others may be stuck.
	restsFor   = 6
	quietParts = 4
	// mostRest bounds that: one target with a long backlog may have been read for all the time.
	mostRest = time.Second
	// mostCalm bounds how long a sweep waits for somebody to be hungry while others are full: what the publisher has of
	// them may be there for good, such as dead letters that their topic refuses.
	mostCalm = time.Minute
)

// A sweepTime is how long a sweep read, and what has happened since.
type sweepTime struct {
	took     time.Duration
	ended    time.Time
	pressing int       // targets that were hungry, or had come back, when that was last looked at
	grew     time.Time // when they had become more
	calm     time.Time // since when some are queued and none of these presses; zero: that is not so
}

// read notes that a page was read, from began on.
func (t *sweepTime) read(began time.Time) {
	t.ended = time.Now()
	t.took += t.ended.Sub(began)
}

// rests returns for how long the next sweep is to rest.
func (t *sweepTime) rests() time.Duration {
	return min(restsFor*t.took-time.Since(t.ended), mostRest-time.Since(t.ended), t.took/quietParts-time.Since(t.grew))
}

// untilSweep returns how long a sweep that would read for those that are queued had better wait until more are; not
// above zero: it need not. None of them will run out of work soon while others are full: a thousand targets with a
// backlog each have room at a thousand moments, a little each, and a sweep for the first of them reads what all others
// will read again. Or few are hungry or came back, of many that will be hungry soon; or some came back a moment ago.
func (s *Scheduler) untilSweep() (wait time.Duration) {
	ts := &s.targets
	stopped := len(ts.in[full].targets)
	pressing := ts.pressing()
	if pressing == 0 && stopped > 0 {
		return mostCalm - s.lastSweep.calmFor()
	}
	if pressing < (stopped+len(ts.in[queued].targets))/2 {
		wait = s.lastSweep.rests()
	}
	if ts.needing[hungry] == 0 && ts.needing[returns] > 0 {
		wait = max(wait, gatherFor-time.Since(s.gathering))
	}
	return wait
}

// calmFor returns for how long some have been queued without pressing.
func (t *sweepTime) calmFor() time.Duration {
	if t.calm.IsZero() {
		return 0
	}
	return time.Since(t.calm)
}

// gather notes since when there are targets that come back, and that the last sweep has not begun for, and when those
// that want the next one have become more.
func (s *Scheduler) gather() {
	switch {
	case s.targets.needing[returns] == 0:
		s.gathering = time.Time{}
	case s.gathering.IsZero():
		s.gathering = time.Now()
	}
	pressing := s.targets.pressing()
	if pressing > s.lastSweep.pressing {
		s.lastSweep.grew = time.Now()
	}
	s.lastSweep.pressing = pressing
	switch {
	case pressing > 0 || len(s.targets.in[queued].targets) == 0:
		s.lastSweep.calm = time.Time{}
	case s.lastSweep.calm.IsZero():
		s.lastSweep.calm = time.Now()
	}
}

// endOfSweep is where reading ends for all that catch up, the frontier at most. Whoever joins has it go on.
func (s *Scheduler) endOfSweep() storage.Ref {
	frontier, catching := s.targets.frontier, s.targets.in[catchingUp].targets
	if len(catching) == 0 {
		return frontier
	}
	end := catching[0].end()
	for _, t := range catching {
		if end.Less(t.end()) {
			end = t.end()
		}
		if !end.Less(frontier) {
			return frontier
		}
	}
	return end
}

// endSweep has those that catch up flow of which all was read: up to the frontier, or to their ends.
func (s *Scheduler) endSweep() {
	ts := &s.targets
	all := !ts.swept.Less(ts.frontier)
	for catching := &ts.in[catchingUp]; len(catching.targets) > 0 && (all || !ts.swept.Less(catching.targets[0].end())); {
		ts.flow(catching.targets[0])
	}
}

// joinsBefore reports whether the sweep takes another target along before it comes to end.
func (s *Scheduler) joinsBefore(end storage.Ref) bool {
	waiting := s.targets.in[queued].targets
	return len(waiting) > 0 && waiting[0].feeding.round == s.targets.round && waiting[0].mark.Less(end)
}

// takeSwept takes in what was read for those that catch up, up to end.
func (s *Scheduler) takeSwept(items []storage.Item, end storage.Ref, limit int64) error {
	due, left := s.due[:0], s.left()
	for _, item := range items {
		if !item.Ref.Less(end) {
			break
		}
		t, known := s.targets.byName[item.Target]
		if !known || t.state != catchingUp || item.Ref.Less(t.mark) {
			continue
		}
		s.targets.sweepTo(item.Ref)
		m, kept := s.window.kept[item.Seq]
		switch {
		case kept && m.handed:
		case item.Due > limit && kept:
		case item.Due > limit:
			if err := s.add(t, item); err != nil {
				return err
			}
		case int(t.handed) < s.allowance(t, left):
			due = s.hand(due, t, item.Ref, s.topics.index(item.Topic, s.window))
		default:
			if kept {
				s.drop(item.Seq)
			}
			s.targets.stop(t, item.Ref)
		}
	}
	s.publish(due)
	s.due = due
	return nil
}

// looksAtFull is how many full targets are looked at in a pass: most get room by their
// own Acks, but what a target may have also grows when others keep less.
const looksAtFull = 8

// lookAtFull finds some of the targets that have room because others keep less.
func (s *Scheduler) lookAtFull() {
	stopped := &s.targets.in[full]
	for range min(looksAtFull, len(stopped.targets)) {
		s.nextFull++
		s.queueIfRoom(stopped.targets[s.nextFull%len(stopped.targets)])
	}
}

// A search looks for strays: messages that are alive and lie before the marks of the
// claim that a term starts from, so that no term would ever read them. Marks never pass
// what waits (see DESIGN.md), but programs before this one could let them, and what
// they left behind is to be delivered too.
//
// The first term of a process goes through all of storage up to the marks, page by page
// while it has nothing else to read: 4 million dead messages that no merge has dropped yet
// took 1.2 s of a core, 11 ms a page. If the term ends before a claim covers what was
// found, the next begins anew.
type search struct {
	next    storage.Ref // everything before was searched
	end     storage.Ref // the highest mark that the term started from
	known   uint64      // messages with this seq or a later one were accepted by this program
	found   int
	claimed bool // a claim was proposed that covers what was found
}

func newSearch(state storage.State, holds []storage.Hold) search {
	s := search{end: state.Claim.Mark, known: state.NextSeq}
	for _, hold := range holds {
		if s.end.Less(hold.Mark) {
			s.end = hold.Mark
		}
	}
	return s
}

func (s *search) isOver() bool { return s.next.Compare(s.end) >= 0 }

// searchOn searches one page. A stray's target is read again from where the stray lies,
// as any target that catches up, and the next claim covers it.
func (s *Scheduler) searchOn() error {
	waits := func(at storage.Ref, topic, target string) bool { return !s.topics.withholds(topic, target, at) }
	items, next, done, err := s.cfg.Store.Scan(s.search.next, storage.Ref{}, s.limits.Page, waits, s.items[:0])
	if err != nil {
		return err
	}
	s.items = items
	for _, item := range items {
		if item.Seq >= s.search.known || item.Ref.Compare(s.search.end) >= 0 {
			continue
		}
		reach := s.targets.reach(s.targets.byName[item.Target])
		if _, kept := s.window.kept[item.Seq]; kept || !item.Ref.Less(reach) {
			continue
		}
		s.targets.stray(s.targets.get(item.Target), item.Ref)
		s.search.found++
	}
	s.search.next = next
	if done {
		s.search.next = s.search.end
	}
	return nil
}

// searchNeedsClaim reports whether a claim must go out because of what was found. It is
// asked when no other is on its way.
func (s *Scheduler) searchNeedsClaim() bool {
	if !s.search.isOver() || s.cfg.Searched.Load() {
		return false
	}
	if s.search.found > 0 && !s.search.claimed {
		s.log.Warn("messages lay behind the marks of the claim, where an earlier version left them: delivering them now", "messages", s.search.found)
		s.search.claimed = true
		return true
	}
	s.cfg.Searched.Store(true)
	return false
}
