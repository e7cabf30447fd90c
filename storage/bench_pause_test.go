package storage

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage/pause"
)

// What pauses cost Apply when a thousand targets come back that were parked before: the claims that
// raise their holds first and set a bound for each pair of a paused topic and a target, and those that
// raise them again. All at once, and as many in a claim as the leader puts there (broker/schedule,
// mostPairs): the longest of these. In processor time of Apply alone, which a busy machine leaves as it is.
func BenchmarkClaimWhilePaused(b *testing.B) {
	const targets, pairs = 1000, 1024
	for _, paused := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("topics=%d", paused), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for _, c := range []struct {
				name string
				size int // of a claim
			}{{"all", targets}, {"claim", min(targets, pairs/paused)}} {
				var first, again time.Duration
				for range b.N {
					s := benchStore(b, b.TempDir())
					s.RaiseLevel(LevelThree)
					raise := func(through int64) (longest time.Duration) {
						var holds []Hold
						for i := range targets {
							holds = append(holds, Hold{Target: fmt.Sprintf("customer-%08d.replies", i), Through: through})
						}
						for some := range slices.Chunk(holds, c.size) {
							begin := threadTime(b)
							s.ChangeClaim(ClaimChange{Through: 2000, Set: some})
							longest = max(longest, threadTime(b)-begin)
						}
						return longest
					}
					raise(1000)
					for i := range paused {
						s.Pause(topicPause(fmt.Sprintf("orders-%03d.delay", i)))
					}
					first += raise(1100)
					again += raise(1200)
					if got := s.Through("orders-000.delay", "customer-00000000.replies"); got != 1000 {
						b.Fatalf("what is paused is claimed through %d", got)
					}
					s.Close()
				}
				ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 / float64(b.N) }
				b.ReportMetric(ms(first), "ms/first-"+c.name)
				b.ReportMetric(ms(again), "ms/again-"+c.name)
			}
		})
	}
}

// What the resume of a topic costs Apply when many targets are parked since it was paused: a bound for each.
func BenchmarkResumeWhileParked(b *testing.B) {
	for _, targets := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("targets=%d", targets), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var used time.Duration
			for range b.N {
				s := benchStore(b, b.TempDir())
				s.RaiseLevel(LevelThree)
				s.Pause(topicPause("orders.delay"))
				change := ClaimChange{Through: 2000}
				for i := range targets {
					change.Set = append(change.Set, Hold{Target: fmt.Sprintf("customer-%08d.replies", i), Through: 2000})
				}
				s.ChangeClaim(change)
				begin := threadTime(b)
				s.Resume(pause.Topic, "orders.delay")
				used += threadTime(b) - begin
				if n := s.PauseBounds().Len(); n != targets {
					b.Fatalf("%d bounds", n)
				}
				s.Close()
			}
			b.ReportMetric(float64(used.Microseconds())/1e3/float64(b.N), "ms/resume")
		})
	}
}
