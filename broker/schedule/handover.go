package schedule

import (
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// What passes between scheduler and publisher: messages that are due, and verdicts on
// targets that are parked or may be fed again.

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
	// paceOver is how long messages may be with the publisher before MostHanded bounds how fast they go out: the Acks of
	// a target that takes a hundred thousand a second come after two commits, which take 0.4 s while the kernel writes
	// back. So a target may have twice what is acknowledged of it in this time.
	paceOver = 500 * time.Millisecond
	// leastPaced is after how many Acks the pace is looked at: a target with fewer in paceOver is not bounded by MostHanded.
	leastPaced = 1024
)

// A DueMessage is what the scheduler hands to the publisher when the time of a
// message has come and its claim is committed.
type DueMessage struct {
	storage.Ref
	Target string
}

// A Verdict is what the publisher tells the scheduler of a target topic.
type Verdict struct {
	Target string
	// Parked says that the target cannot be written to. Everything of it that was handed
	// over and not acknowledged is the scheduler's again, listed in Returned; the publisher
	// keeps only what it needs to ask Kafka for the target.
	//
	// A verdict without Parked says that the target may be fed: Kafka says that it exists,
	// it goes on trial though it is absent, or the publisher had messages to send to it when
	// Confirm came.
	Parked   bool
	Returned []storage.Ref
}

// A Publisher is handed what is due. Neither call blocks.
type Publisher interface {
	// Hand passes messages on, in order of delivery. It does not keep the slice.
	Hand(due []DueMessage)
	// Confirm says that the scheduler knows the target to be parked. It answers each verdict
	// with Parked: when it comes, the publisher has all that was handed over before the verdict
	// was known. A new term calls it for each target that the claim holds, which the publisher
	// then watches.
	Confirm(target string)
}

// stillOut returns what the publisher still has of the target.
func (s *Scheduler) stillOut(t *target) []storage.Ref {
	f := t.feeding
	if f == nil {
		return nil
	}
	f.out = slices.DeleteFunc(f.out, s.window.isGone)
	return f.out
}

// A pace counts the messages of a target that the publisher had, and that have ended.
type pace struct {
	since  time.Time
	ended  int // since then
	lately int // in paceOver, when that was last counted
}

// end counts a message.
func (p *pace) end() {
	if p.ended++; p.ended%leastPaced != 0 {
		return
	}
	now := time.Now()
	if took := now.Sub(p.since); took >= paceOver {
		*p = pace{since: now, lately: int(int64(p.ended) * int64(paceOver) / int64(took))}
	}
}

// left is how many messages more the publisher may have of all targets.
func (s *Scheduler) left() int { return s.limits.HandedAll - s.window.handed }

// allowance is how many messages of one target the publisher may have now, when so many more are left for all. One that takes
// many is bounded by its pace, and leaves others half of what there is.
//
// One that is released may have no more, since what it has cannot be cancelled.
func (s *Scheduler) allowance(t *target, left int) int {
	ordinary := min(s.limits.Handed, max(leastHanded, left/4))
	if t.feeding == nil || t.feeding.release != nil {
		return ordinary
	}
	return max(ordinary, min(2*t.feeding.pace.lately, left/2))
}

// hasRoomAgain reports whether a target that was full may have a good deal more.
func (s *Scheduler) hasRoomAgain(t *target) bool {
	allowance := s.allowance(t, s.left())
	return int(t.handed) <= allowance-allowance/4
}

// isHungry reports whether the publisher has less of a target than half of what each may have of those that
// want more.
func (s *Scheduler) isHungry(t *target) bool {
	wanting := len(s.targets.in[full].targets) + len(s.targets.in[queued].targets)
	share := s.limits.HandedAll / max(wanting, 1)
	most := max(s.limits.Handed, s.allowance(t, s.left()))
	return int(t.handed) <= min(max(share, leastHanded), most)/2
}

// queueIfRoom has the next sweep take a full target along that has room again. One that is queued already may
// have become hungry.
func (s *Scheduler) queueIfRoom(t *target) {
	if t.state == full && s.hasRoomAgain(t) {
		s.targets.queue(t)
	}
	if t.state == queued && s.isHungry(t) {
		s.targets.setNeed(t, hungry)
	}
}

// takeVerdicts hears from the publisher which targets are parked and which may be fed again.
func (s *Scheduler) takeVerdicts() {
	for _, v := range s.cfg.Verdicts.Take(nil) {
		if v.Parked {
			s.park(v)
		} else if t, known := s.targets.byName[v.Target]; known && t.ill {
			s.cfg.Report.SetParked(t.index, "")
			t.ill = false
			s.healUnlessHeld(t)
		}
	}
}

// feedNoMore has all that was not handed over wait in storage, unless it does already. The target is
// claimed that far.
func (s *Scheduler) feedNoMore(t *target, through int64) {
	if t.state == parked {
		return
	}
	// Some may still be on their way to the lane, and come back with a later
	// verdict; others are delivered and their Ack is not applied. A term that
	// reads from here finds them all.
	low := s.targets.reach(t).Min(s.window.lowestAhead(s.targets.frontier))
	for _, ref := range s.stillOut(t) {
		low = low.Min(ref)
	}
	var ahead []storage.Ref
	if r := t.release(); r != nil {
		ahead = r.ahead
	}
	s.targets.park(t, low, through)
	for _, ref := range ahead {
		if s.window.kept[ref.Seq].handed {
			s.leaveInStorage(t, ref)
		}
	}
}

// healUnlessHeld has a parked target fed again, unless there is still a reason not to.
func (s *Scheduler) healUnlessHeld(t *target) {
	if t.state == parked && !t.ill && !t.paused {
		s.targets.heal(t)
	}
}

// park takes back what the publisher returns of a target that it has parked.
func (s *Scheduler) park(v Verdict) {
	t := s.targets.get(v.Target)
	if !t.ill {
		s.cfg.Report.SetParked(t.index, t.name)
		t.ill = true
	}
	through := s.claims.committed.Through
	if t.mayBeHeld() || t.pending {
		through = t.through // it keeps the step that it has reached
	}
	s.feedNoMore(t, through)
	for _, ref := range v.Returned {
		// What was acknowledged meanwhile is not kept any more.
		if s.window.kept[ref.Seq].handed {
			s.leaveInStorage(t, ref)
		}
	}
	if t.handed == 0 {
		t.feeding = nil // of a hundred thousand it would be some megabytes
	}
	// The publisher feeds it again only when it knows that we have taken it back.
	s.cfg.Publisher.Confirm(t.name)
}
