package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

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
