package schedule

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// A countingLog counts claims and their bytes.
type countingLog struct {
	Log
	claims, bytes atomic.Int64
}

func (c *countingLog) Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal {
	switch command.(type) {
	case raftfsm.ClaimCommand, raftfsm.ChangeClaim:
		c.claims.Add(1)
		c.bytes.Add(int64(command.Size()))
	}
	return c.Log.Propose(ctx, command)
}

// Whoever is parked costs a claim when that begins and when it ends, and nothing in between.
func TestClaims_nameOnlyTheHoldsThatChange(t *testing.T) {
	const n = 10_000
	onStage(t, func(ctx context.Context, s *stage) {
		s.propose(ctx, raftfsm.RaiseLevel{Level: storage.LevelTwo})
		log := &countingLog{Log: s.node}
		s.log = log
		s.unchecked = true // too many to look at them after each pass
		s.lead(ctx)
		for i := range n {
			s.verdicts.Put(Verdict{Target: nameOf(i), Parked: true})
		}
		time.Sleep(time.Second)
		if holds := s.node.Store().Holds(); len(holds) != n {
			t.Fatalf("%d targets are held, want %d", len(holds), n)
		}
		if perHold := log.bytes.Load() / n; perHold > 100 {
			t.Errorf("%d bytes of claims for each hold that was set", perHold)
		}

		log.claims.Store(0)
		log.bytes.Store(0)
		s.accept(ctx, "fine", 100, func(i int) time.Duration { return time.Duration(i) * 50 * time.Millisecond })
		time.Sleep(10 * time.Second)
		s.checkOnTime("fine", 100)
		if claims, bytes := log.claims.Load(), log.bytes.Load(); claims < 10 || bytes > 50*claims {
			t.Errorf("%d claims of %d bytes together beside %d targets that stay parked", claims, bytes, n)
		}

		s.verdicts.Put(Verdict{Target: nameOf(7)})
		time.Sleep(time.Second)
		synctest.Wait()
		if holds := s.node.Store().Holds(); len(holds) != n-1 || holds[7].Target != nameOf(8) {
			t.Errorf("%d targets are held, the 8th is %q", len(holds), holds[7].Target)
		}
		if known := len(s.scheduler.targets.byName); known != n-1 {
			t.Errorf("%d targets are known, want those that are parked", known)
		}
		s.lead(ctx) // a new term needs them all
		synctest.Wait()
		if parked := len(s.scheduler.targets.in[parked].targets); parked != n-1 {
			t.Errorf("a new term knows of %d that are parked, want %d", parked, n-1)
		}
	})
}

// The scheduler sleeps until a message is a lead away, and claims it then: not a moment before, when it might still be
// cancelled, nor one after, having woken in vain.
func TestClaims_areMadeALeadAhead(t *testing.T) {
	const now = 1_000_000
	c := newClaims(storage.Claim{Through: now - 5000}, 0)
	for next := int64(now + 1); next < now+5000; next++ {
		wakes := now + c.wait(now, next).Milliseconds()
		if want := min(max(next-ClaimLead, now+1), now+1000); wakes != want {
			t.Fatalf("due in %d ms: the scheduler wakes after %d ms, want %d", next-now, wakes-now, want-now)
		}
		if got, want := c.wants(wakes, next), wakes >= next-ClaimLead; got != want {
			t.Fatalf("due in %d ms: after %d ms a claim is wanted: %v, want %v", next-now, wakes-now, got, want)
		}
	}
	c.committed.Through = now + ClaimLead/2
	if wait := c.wait(now, c.committed.Through); wait != time.Second {
		t.Errorf("the last that is claimed is due in %d ms: the scheduler wakes for a claim after %v", ClaimLead/2, wait)
	}
}

// A target that is tried again and again, and fails, is held all the time as it was. More waits for it
// than it is handed at a time.
func TestClaims_nameNoHoldThatStaysAsItIs(t *testing.T) {
	const n = 2*MostHanded + 100
	onStage(t, func(ctx context.Context, s *stage) {
		s.raise(ctx, storage.LevelThree)
		s.unchecked = true
		log := &countingLog{Log: s.node}
		s.log = log
		s.silence("stuck", true)
		s.lead(ctx)
		s.accept(ctx, "stuck", n, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		park := func() {
			s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: s.got("stuck")})
			time.Sleep(time.Second)
			s.mu.Lock()
			clear(s.handed)
			s.mu.Unlock()
		}
		park()
		held, before := s.node.Store().Holds(), log.claims.Load()
		for range 10 {
			s.verdicts.Put(Verdict{Target: "stuck"})
			time.Sleep(time.Second)
			if handed := len(s.got("stuck")); handed != MostHanded {
				t.Fatalf("%d messages are handed over for a try, want %d", handed, MostHanded)
			}
			park()
		}
		if claims, now := log.claims.Load()-before, s.node.Store().Holds(); claims > 0 || len(now) != 1 || now[0] != held[0] {
			t.Errorf("%d claims for ten tries; holds %v were %v", claims, now, held)
		}
		s.silence("stuck", false)
		s.lead(ctx) // which finds them by the hold
		synctest.Wait()
		s.verdicts.Put(Verdict{Target: "stuck"})
		time.Sleep(10 * time.Second)
		s.check("stuck", n)
	})
}

// A wideLog keeps how many holds of targets a claim has set or lifted at most.
type wideLog struct {
	Log
	widest atomic.Int64
}

func (l *wideLog) Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal {
	if claim, ok := command.(raftfsm.ChangeClaim); ok {
		l.widest.Store(max(l.widest.Load(), int64(len(claim.Set)+len(claim.Lift))))
	}
	return l.Log.Propose(ctx, command)
}

// Many targets that come back while much is paused are spread over claims, so that none stops Apply for
// long, and all come back.
func TestClaims_raiseFewHoldsAtATimeWhileMuchIsPaused(t *testing.T) {
	const n, topics = 600, 10
	onStage(t, func(ctx context.Context, s *stage) {
		s.raise(ctx, storage.LevelThree)
		s.unchecked = true // too many to look at them after each pass
		log := &wideLog{Log: s.node}
		s.log = log
		s.lead(ctx)
		for i := range n {
			s.verdicts.Put(Verdict{Target: nameOf(i), Parked: true})
		}
		time.Sleep(time.Second)
		for i := range topics {
			s.pause(ctx, pause.Topic, fmt.Sprintf("%d.delay", i))
		}
		for i := range n {
			s.acceptBy(ctx, "a.delay", nameOf(i), 2, every(time.Second))
		}
		time.Sleep(time.Minute)
		log.widest.Store(0)
		for i := range n {
			s.verdicts.Put(Verdict{Target: nameOf(i)})
		}
		time.Sleep(time.Minute)
		if got := s.count(); got != 2*n {
			t.Errorf("%d messages are handed over, want %d", got, 2*n)
		}
		if widest := log.widest.Load(); widest < 1 || widest*topics > mostPairs {
			t.Errorf("a claim raises %d holds while %d topics are paused, want %d of the two together at most", widest, topics, mostPairs)
		}
		if holds := s.node.Store().Holds(); len(holds) > 0 {
			t.Errorf("%d targets are held at the end", len(holds))
		}
	})
}

// What a message that fires costs while as many targets are parked.
func BenchmarkParked(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run(fmt.Sprint("targets=", n), func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			s := newStage(b, ctx)
			s.unchecked = true
			s.propose(ctx, raftfsm.RaiseLevel{Level: storage.LevelTwo})
			before := heapInUse()
			s.holdMany(ctx, n, 0)
			inApply := heapInUse() - before
			log := &countingLog{Log: s.node}
			s.log = log
			s.lead(ctx)
			s.accept(ctx, "fine", 1, func(int) time.Duration { return 0 })
			for s.count() < 1 {
				time.Sleep(time.Millisecond)
			}
			inScheduler := heapInUse() - before - inApply
			log.bytes.Store(0)
			b.ResetTimer()
			used := cpuTime(b)
			for i := range b.N {
				s.accept(ctx, "fine", 1, func(int) time.Duration { return 0 })
				for s.count() < i+2 {
					time.Sleep(100 * time.Microsecond)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-used)/float64(b.N)/1e3, "cpu-us/msg")
			b.ReportMetric(float64(log.bytes.Load())/float64(b.N), "claim-B/msg")
			if n > 0 {
				b.ReportMetric(float64(inApply)/float64(n), "B/name-in-Apply")
				b.ReportMetric(float64(inScheduler)/float64(n), "B/name-in-scheduler")
			}
			b.StopTimer()
			cancel()
			<-s.ended
			if err := s.node.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpuTime tells what a figure is worth when others use the machine as well.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
