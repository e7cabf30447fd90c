package schedule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// A message that is on its way to the lane when the target is parked comes back
// with a second verdict. The next term must find it, though it is due before what
// the first verdict returned.
func TestScheduler_newTermFindsWhatWasOnItsWayToAParkedTarget(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["stuck"] = true
		first, end := context.WithCancel(ctx)
		s.lead(first)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return -time.Hour })
		time.Sleep(time.Second)
		handed := s.got("stuck")
		if len(handed) != 2 {
			t.Fatalf("%d messages handed over, want 2", len(handed))
		}
		s.accept(ctx, "fine", 100, func(i int) time.Duration { return time.Duration(i) * 20 * time.Millisecond })
		time.Sleep(3 * time.Second) // claims are committed meanwhile

		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: handed[:1]})
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: handed[1:]})
		time.Sleep(time.Second)
		end()
		synctest.Wait()

		s.mu.Lock()
		s.handed["stuck"], s.silent["stuck"] = nil, false
		s.mu.Unlock()
		s.lead(ctx)
		s.verdicts.Put(Verdict{Target: "stuck"})
		time.Sleep(5 * time.Second)
		s.check("stuck", 2)
	})
}

func TestScheduler_forgetsWhatIsDeliveredBehindASlowMessage(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["slow"] = true
		s.lead(ctx)
		s.accept(ctx, "slow", 1, func(int) time.Duration { return 0 })
		n := 20_000
		if testing.Short() {
			n = 3 * PageSize
		}
		s.accept(ctx, "fine", n, func(i int) time.Duration { return time.Second + time.Duration(i)*time.Millisecond })
		time.Sleep(time.Minute)
		s.check("fine", n)
		synctest.Wait() // the scheduler sleeps: what it owns can be looked at
		if kept := s.scheduler.window.out.len(); kept > 2*PageSize {
			t.Errorf("%d messages are remembered, want %d at most", kept, 2*PageSize)
		}
		if lowest := s.scheduler.window.lowest(s.scheduler.targets.frontier); lowest.Compare(s.got("slow")[0]) > 0 {
			t.Errorf("lowest is %v, the slow message is %v", lowest, s.got("slow")[0])
		}
	})
}

// The hold of a parked target goes on covering what is accepted for it.
func TestScheduler_holdCoversWhatIsAcceptedLater(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["stuck"] = true
		s.lead(ctx)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: s.got("stuck")})
		time.Sleep(time.Second)
		s.accept(ctx, "stuck", 1, func(int) time.Duration { return -2 * time.Hour })
		time.Sleep(time.Second)
		holds := s.node.Store().Holds()
		early := storage.Ref{Due: time.Now().Add(-2 * time.Hour).UnixMilli()}
		if len(holds) != 1 || holds[0].Mark.Compare(early) > 0 {
			t.Errorf("holds = %v, want one at or before %v", holds, early)
		}
	})
}

// A target of which nothing waits is fed again while another catches up, which takes many pages: it waits for the
// end of that with nothing to be read for it.
func TestScheduler_feedsATargetOfWhichNothingWaitsBesideABacklog(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.raise(ctx, storage.LevelThree)
		s.limits = DefaultLimits()
		s.limits.Page = 16
		s.lead(ctx)
		time.Sleep(time.Second) // all is read: nothing
		for _, target := range []string{"busy", "idle"} {
			s.verdicts.Put(Verdict{Target: target, Parked: true})
		}
		time.Sleep(time.Second)
		const n = checkedAlways - 1
		s.accept(ctx, "busy", n, func(int) time.Duration { return time.Second })
		time.Sleep(time.Minute)
		for _, target := range []string{"busy", "idle"} {
			s.verdicts.Put(Verdict{Target: target})
		}
		time.Sleep(time.Second)
		s.accept(ctx, "idle", n, func(int) time.Duration { return 0 })
		time.Sleep(time.Minute)
		synctest.Wait()
		s.check("busy", n)
		s.check("idle", n)
		if known := len(s.scheduler.targets.byName); known > 0 {
			t.Errorf("%d targets are known at the end", known)
		}
	})
}
