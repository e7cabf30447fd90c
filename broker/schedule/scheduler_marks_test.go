package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A schedule of checkedAlways messages is looked through after every pass, a larger one so much more rarely that a check costs no more.
const checkedAlways = 100

// checkMarks asserts, over the real store, what targets.reach and the claim
// promise: what is alive is kept or will be read, in this term and in the next.
func (s *stage) checkMarks(scheduler *Scheduler) {
	passes := s.passes.Add(1)
	more := s.node.Store().Pending() / checkedAlways
	if s.t.Failed() || s.strays && !s.searched.Load() || passes%(1+more*more) != 0 {
		return
	}
	if problem := scheduler.misplaced(); problem != "" {
		s.t.Error(problem)
		return
	}
	problem, at := s.lookForLost(scheduler)
	if problem == "" {
		return
	}
	// An entry may be half applied at this moment. In the bubble all is done once we sleep.
	time.Sleep(time.Millisecond)
	if again, then := s.lookForLost(scheduler); again != "" && then == at {
		s.t.Errorf("after log entry %d: %s", then, again)
	}
}

// lookForLost names a message that waits for ever. It finds nothing while the feed
// has more to show.
func (s *stage) lookForLost(scheduler *Scheduler) (problem string, at uint64) {
	store := s.node.Store()
	state := store.State()
	marks, topics := make(map[string]storage.Ref), make(map[string]storage.Ref)
	for _, hold := range store.Holds() {
		marks[hold.Target] = hold.Mark
	}
	for _, hold := range store.TopicHolds() {
		topics[hold.Topic] = hold.Mark
	}
	if problem := s.lookForFallen(); problem != "" {
		return problem, state.AppliedIndex
	}
	var items []storage.Item
	for from, done := (storage.Ref{}), false; !done; {
		var err error
		if items, from, done, err = store.Scan(from, storage.Ref{}, len(items)+PageSize, nil, items); err != nil {
			return err.Error(), state.AppliedIndex
		}
	}
	if at = store.State().AppliedIndex; at != state.AppliedIndex || at != scheduler.claims.seen {
		return "", at
	}
	for _, item := range items {
		mark, held := marks[item.Target]
		if !held {
			mark = state.Claim.Mark
		}
		if own, paused := topics[item.Topic]; paused {
			mark, held = own, true
		}
		if item.Ref.Less(mark) {
			return fmt.Sprintf("message %v of %q lies before the claim's mark %v (held: %v)", item.Ref, item.Target, mark, held), at
		}
		if _, kept := scheduler.window.kept[item.Seq]; kept || scheduler.topics.withholds(item.Topic, item.Target, item.Ref) {
			continue
		}
		t := scheduler.targets.byName[item.Target]
		if scheduler.targets.isToBeKept(t, item.Ref) {
			return fmt.Sprintf("message %v of %q is not kept and lies before %v, or after the end: %+v", item.Ref, item.Target, scheduler.targets.reach(t), t), at
		}
	}
	return "", at
}

// lookForFallen names a target that is claimed less far than it was: then what was too late to
// cancel would not be any more. Below storage.LevelThree nothing can be cancelled.
func (s *stage) lookForFallen() (problem string) {
	store := s.node.Store()
	if store.Level() < storage.LevelThree {
		return ""
	}
	for target := range s.scheduler.targets.byName {
		through := store.Through("", target)
		if through < s.through[target] {
			problem = fmt.Sprintf("%q was claimed up to %d, and is up to %d", target, s.through[target], through)
		}
		s.through[target] = max(through, s.through[target])
	}
	return problem
}

// misplaced names a target that is not where those are looked for that are in its
// state, or of which nothing need be known.
func (s *Scheduler) misplaced() string {
	ts := &s.targets
	kept, handed := make(map[uint32]int), make(map[uint32]int)
	for _, h := range s.window.kept {
		kept[h.target]++
		if h.handed {
			handed[h.target]++
		}
	}
	for name, t := range ts.byName {
		wrong := map[string]bool{
			"index": ts.byIndex[t.index] != t || t.name != name,
			"count": int(t.kept) != kept[t.index] || int(t.handed) != handed[t.index] || t.handed > 0 && int(t.handed) > len(t.feeding.out),
			"place": !ts.in[t.state].has(t) || ts.in[t.state].targets[t.place[placeState]-1] != t,
			"round": t.state == queued && t.feeding.round <= ts.round && t.mark.Less(ts.swept) && len(ts.in[catchingUp].targets) > 0,
			"holds": !ts.changed.has(t) && t.isToBeHeld() != t.held,
			"feeds": t.state < parked && (t.held || t.pending) && t.release() == nil,
			"steps": t.release() != nil && (!t.held || t.state >= parked),
			"asked": !ts.changed.has(t) && !t.pending && t.wantsClaim(),
			"ahead": t.release() != nil && !t.release().isInOrder(),
			"marks": ts.uncovered.has(t) != (t.hasOwnMark() && !(t.isToBeHeld() && t.held)),
			"known": t.state == flowing && t.kept == 0 && !t.held && !t.pending,
			"ended": t.state >= parked && t.end() != endOfSchedule || t.state < parked && t.hasOwnMark() && !t.mark.Less(t.end()) && t.mark != endOfSchedule, // nothing waits of it there
			"cause": (t.state == parked) != (t.ill || t.paused),
		}
		for what, is := range wrong {
			if is {
				return fmt.Sprintf("%s of %+v is wrong", what, t)
			}
		}
	}
	for _, h := range s.topics.held {
		if s.topics.byName[h.name] != h || h.end().Less(h.read) || h.paused && h.wantsClaim() {
			return fmt.Sprintf("topic %+v", h)
		}
	}
	if len(s.topics.held) != len(s.topics.byName) {
		return fmt.Sprintf("%d topics are held, %d by name", len(s.topics.held), len(s.topics.byName))
	}
	listed := 0
	for _, in := range ts.in {
		listed += len(in.targets)
	}
	if len(ts.byName)+len(ts.free) != len(ts.byIndex) || listed != len(ts.byName) || len(ts.uncovered.targets) > listed || len(ts.changed.targets) > listed {
		return fmt.Sprintf("%d targets and %d free places of %d", len(ts.byName), len(ts.free), len(ts.byIndex))
	}
	return ""
}

// isInOrder reports whether what waits does so in order of delivery.
func (r *release) isInOrder() bool {
	return slices.IsSortedFunc(r.ahead, storage.Ref.Compare)
}

// A parked target's mark may be later than where a new term begins to read, because
// another's message has been with the publisher for long. What is accepted for it
// between the two, before reading comes there, is delivered like all else.
func TestScheduler_arrivalBetweenTheFrontierAndAHoldIsRead(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["kept"], s.silent["stuck"] = true, true
		first, end := context.WithCancel(ctx)
		s.lead(first)
		s.accept(ctx, "kept", 1, func(int) time.Duration { return 0 })
		time.Sleep(time.Hour)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: s.got("stuck")})
		time.Sleep(time.Second)
		end()
		synctest.Wait()

		s.mu.Lock()
		clear(s.handed)
		clear(s.silent)
		s.mu.Unlock()
		feed := s.begin(ctx)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return -30 * time.Minute })
		s.run(ctx, feed)
		ticks := func(i int) time.Duration { return time.Duration(i) * 100 * time.Millisecond }
		s.accept(ctx, "fine", 50, ticks) // claims are committed meanwhile
		time.Sleep(10 * time.Second)
		s.verdicts.Put(Verdict{Target: "stuck"})
		s.accept(ctx, "fine", 50, ticks)
		time.Sleep(10 * time.Second)
		s.check("stuck", 2)
	})
}

// The feed loses something late while reading has not come to something early.
func TestScheduler_lossMovesTheFrontierBackAndNotOn(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.capacity = 10
		s.accept(ctx, "out", 5, func(i int) time.Duration { return time.Duration(i) * time.Second })
		feed := s.begin(ctx)
		s.accept(ctx, "out", 20, func(i int) time.Duration { return time.Minute + time.Duration(i)*time.Second })
		s.run(ctx, feed)
		time.Sleep(2 * time.Minute)
		s.check("out", 25)
	})
}

// leaveBehind accepts messages, then proposes a claim whose marks pass them, as
// programs before this one could.
func (s *stage) leaveBehind(ctx context.Context, holds ...storage.Hold) {
	s.t.Helper()
	s.strays = true
	s.searched.Store(false)
	now := time.Now().UnixMilli()
	claim := storage.Claim{Through: now, Mark: storage.Ref{Due: now}, Holds: holds}
	s.propose(ctx, raftfsm.ClaimCommand{Time: now, Claim: claim}) // lowered to what is fresh
	s.propose(ctx, raftfsm.ClaimCommand{Time: now, Claim: claim})
}

func TestScheduler_firstTermFindsWhatAnEarlierProgramLeftBehind(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		past := func(i int) time.Duration { return time.Duration(-i-1) * time.Minute }
		s.accept(ctx, "out", 100, past)
		s.accept(ctx, "stuck", 100, past)
		now := time.Now().UnixMilli()
		s.leaveBehind(ctx, storage.Hold{Target: "stuck", Through: now, Mark: storage.Ref{Due: now + 1000}})
		s.lead(ctx)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return 500 * time.Millisecond })
		time.Sleep(2 * time.Second)
		s.check("out", 100)
		s.check("stuck", 0)
		if !s.searched.Load() {
			t.Error("storage was not searched to the end")
		}
		s.verdicts.Put(Verdict{Target: "stuck"})
		time.Sleep(2 * time.Second)
		s.check("stuck", 101)
	})
}

// The search reads much, and what is due meanwhile is on time: claims go on as well.
func TestScheduler_searchDelaysNobody(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		n := 20_000
		for range 10 {
			s.accept(ctx, "gone", n, func(int) time.Duration { return -time.Hour })
		}
		s.propose(ctx, raftfsm.Ack{Runs: []storage.SeqRun{{First: 1, Last: uint64(10*n - 1)}}})
		s.leaveBehind(ctx)
		s.accept(ctx, "fine", 20, func(i int) time.Duration { return time.Duration(i) * 200 * time.Millisecond })
		s.lead(ctx)
		time.Sleep(10 * time.Second)
		s.checkOnTime("fine", 20)
		s.check("gone", 1)
	})
}

// A term that ends before all was searched, or before a claim covers what was found, leaves the search to the next one.
func TestSearch_isDoneOnceAClaimCoversWhatWasFound(t *testing.T) {
	var searched atomic.Bool
	s := &Scheduler{cfg: Options{Searched: &searched}, log: slog.New(slog.DiscardHandler), search: search{next: at(50), end: at(100)}}
	for _, step := range []struct {
		what   string
		search search
		wants  bool
		done   bool
	}{
		{"in the middle", search{next: at(50), end: at(100)}, false, false},
		{"in the middle, with a find", search{next: at(50), end: at(100), found: 1}, false, false},
		{"at the end, with a find", search{next: at(100), end: at(100), found: 1}, true, false},
		{"when the claim is committed", search{next: at(100), end: at(100), found: 1, claimed: true}, false, true},
	} {
		s.search = step.search
		if wants := s.searchNeedsClaim(); wants != step.wants || searched.Load() != step.done {
			t.Errorf("%s: wants a claim %v, is done %v; want %v and %v", step.what, wants, searched.Load(), step.wants, step.done)
		}
	}
}
