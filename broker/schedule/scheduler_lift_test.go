package schedule

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// liftsWait is a log that keeps back claims that lift holds of targets, until it may let them through.
type liftsWait struct {
	Log
	through chan struct{} // closed: it may
}

func (l *liftsWait) Propose(ctx context.Context, c raftfsm.Command) *raftfsm.Proposal {
	if claim, isClaim := c.(raftfsm.ChangeClaim); isClaim && len(claim.Lift) > 0 {
		<-l.through
	}
	return l.Log.Propose(ctx, c)
}

// A target is paused and resumed while the claim that lifts its hold is on its way, and the scheduler hears of
// all three at once. Whatever their order in the log, nothing is handed over that is not claimed, and all comes.
func TestPause_andResumeWhileAClaimLiftsTheHold(t *testing.T) {
	for _, claimed := range []string{"before both", "between", "after both"} {
		t.Run(claimed, func(t *testing.T) {
			onStage(t, func(ctx context.Context, s *stage) {
				log := &liftsWait{s.node, make(chan struct{})}
				s.log = log
				s.holdBacklog(ctx, "slow", 300, 100)
				feed := s.begin(ctx)
				look := func() {
					t.Helper()
					for range 20 {
						if _, err := s.scheduler.pass(ctx); err != nil {
							t.Fatal(err)
						}
						s.checkMarks(s.scheduler)
						synctest.Wait()
					}
				}
				s.verdicts.Put(Verdict{Target: "slow"})
				look()
				time.Sleep(gatherFor)
				look()
				if slow := s.scheduler.targets.byName["slow"]; slow == nil || !slow.pending || !slow.held || slow.state != flowing {
					t.Fatalf("no claim is on its way that lifts the hold: %+v", slow)
				}
				now := func(when string) {
					if when == claimed {
						close(log.through)
						synctest.Wait()
					}
				}
				now("before both")
				s.pause(ctx, pause.Target, "slow")
				now("between")
				s.resume(ctx, pause.Target, "slow")
				now("after both")
				look()
				s.run(ctx, feed)
				s.accept(ctx, "slow", 100, every(10*time.Millisecond))
				time.Sleep(time.Minute)
				s.check("slow", 400)
				if holds := s.node.Store().Holds(); len(holds) > 0 {
					t.Errorf("still held: %v", holds)
				}
			})
		})
	}
}

// A topic that is resumed does not wait for targets that take their backlog slowly.
func TestPause_thatEndsDoesNotWaitForSlowReleases(t *testing.T) {
	for _, paused := range []int{10, 100} {
		t.Run(fmt.Sprint(paused), func(t *testing.T) {
			onPauses(t, func(ctx context.Context, s *stage) {
				s.unchecked = true
				s.limits = DefaultLimits()
				s.limits.Handed = 20
				from := time.Now().Add(-time.Minute).UnixMilli()
				change := storage.ClaimChange{Through: from, Mark: storage.Ref{Due: from}}
				for i := range 30 {
					s.silence(nameOf(i), true)
					s.accept(ctx, nameOf(i), 100, func(i int) time.Duration { return time.Duration(i-5000) * time.Millisecond })
					change.Set = append(change.Set, storage.Hold{Target: nameOf(i), Through: from, Mark: storage.Ref{Due: from}})
				}
				s.propose(ctx, raftfsm.ChangeClaim{ClaimChange: change})
				for i := range paused {
					s.pause(ctx, pause.Topic, fmt.Sprintf("paused-%d.delay", i))
				}
				s.pause(ctx, pause.Topic, "b.delay")
				s.lead(ctx)
				for i := range 30 {
					s.verdicts.Put(Verdict{Target: nameOf(i)})
				}
				time.Sleep(time.Second)
				s.resume(ctx, pause.Topic, "b.delay")
				time.Sleep(time.Second)
				s.acceptBy(ctx, "b.delay", "fine", 10, every(time.Second))
				time.Sleep(time.Hour)
				s.check("fine", 10)
			})
		})
	}
}
