package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A countingStore counts the entries that scans look at, those in memory twice.
type countingStore struct {
	Store
	looks atomic.Int64
	most  int64         // looks that a test grants; 0: any number
	takes time.Duration // what each look takes
	then  func()        // called once, at the end of the first scan after it was set
}

func (c *countingStore) Scan(from, to storage.Ref, limit int, keep storage.Filter, out []storage.Item) ([]storage.Item, storage.Ref, bool, error) {
	if c.most > 0 && c.looks.Load() > c.most {
		return nil, from, false, fmt.Errorf("looked at %d entries, %d would do", c.looks.Load(), c.most)
	}
	before := c.looks.Load()
	items, next, done, err := c.Store.Scan(from, to, limit, func(at storage.Ref, topic, target string) bool {
		c.looks.Add(1)
		return keep == nil || keep(at, topic, target)
	}, out)
	time.Sleep(time.Duration(c.looks.Load()-before) * c.takes)
	if c.then != nil {
		c.then()
		c.then = nil
	}
	return items, next, done, err
}

func nameOf(i int) string { return fmt.Sprintf("customer-%08d.replies", i) }

// acceptForMany schedules each messages for each of n targets, in turn, the i-th due at due(i).
func (s *stage) acceptForMany(ctx context.Context, n, each int, due func(i int) time.Duration) {
	s.t.Helper()
	now := time.Now()
	entries := make([]storage.Entry, 0, n*each)
	for i := range n * each {
		entries = append(entries, storage.Entry{Due: now.Add(due(i)).UnixMilli(), Target: nameOf(i % n), Body: make([]byte, 100)})
	}
	for len(entries) > 0 {
		take := min(len(entries), 2000)
		part := raftfsm.Part{Topic: "in.delay", From: s.next, Next: s.next + int64(take), Epoch: -1, Entries: entries[:take]}
		entries = entries[take:]
		s.next += int64(take)
		s.propose(ctx, raftfsm.Ingest{Time: now.UnixMilli(), Parts: []raftfsm.Part{part}})
	}
}

// after has all messages due then.
func after(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// holdMany makes a new term find n targets parked.
func (s *stage) holdMany(ctx context.Context, n int, mark time.Duration) {
	s.t.Helper()
	now := time.Now()
	claim := storage.Claim{Through: now.UnixMilli(), Mark: storage.Ref{Due: now.UnixMilli()}}
	for i := range n {
		claim.Holds = append(claim.Holds, storage.Hold{Target: nameOf(i), Through: claim.Through, Mark: storage.Ref{Due: now.Add(mark).UnixMilli()}})
	}
	s.propose(ctx, raftfsm.ClaimCommand{Time: claim.Through, Claim: claim})
}

// However many targets catch up, and however much waits at the same time for those that are
// still parked, the backlog is read once for all that heal together, and once more for all
// that heal while it is read.
func TestSweep_readsABacklogOnceForAllThatHeal(t *testing.T) {
	const n, each, beside = 200, 50, 20_000
	onStage(t, func(ctx context.Context, s *stage) {
		s.holdMany(ctx, n+1, -time.Second)
		s.acceptForMany(ctx, n, each, after(0))
		s.accept(ctx, nameOf(n), beside, func(int) time.Duration { return -time.Millisecond })
		store := &countingStore{Store: s.node.Store()}
		s.store = store
		s.lead(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		before := store.looks.Load()
		var healed []Verdict
		for i := range n {
			healed = append(healed, Verdict{Target: nameOf(i)})
		}
		store.then = func() { s.verdicts.Put(healed[n/2:]...) }
		s.verdicts.Put(healed[:n/2]...)
		time.Sleep(10 * time.Second)
		for i := range n {
			s.check(nameOf(i), each)
		}
		s.check(nameOf(n), 0)
		if looks := store.looks.Load() - before; looks > 3*(n*each+beside) {
			t.Errorf("looked at %d entries for a backlog of %d beside %d of a parked target", looks, n*each, beside)
		}
	})
}

// A target that heals may have more ahead of it than the window takes. What does not fit
// is left in storage, and what was read is not read again and again.
func TestSweep_endsWhereTheWindowIsFull(t *testing.T) {
	const each, pages = 5000, 14
	onStage(t, func(ctx context.Context, s *stage) {
		store := &countingStore{Store: s.node.Store()}
		s.store = store
		s.unchecked = true // a check goes through all that is pending
		s.silence("out", true)
		s.lead(ctx)
		s.accept(ctx, "out", 1, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "out", Parked: true, Returned: s.got("out")})
		time.Sleep(time.Second)
		for range pages {
			s.accept(ctx, "out", each, func(i int) time.Duration { return time.Hour + time.Duration(i)*time.Millisecond })
			time.Sleep(time.Second)
		}
		synctest.Wait() // the scheduler sleeps: what it owns can be looked at
		store.most = store.looks.Load() + 5*pages*each
		s.silence("out", false)
		s.verdicts.Put(Verdict{Target: "out"})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.scheduler.window.len(); n > mostLoaded {
			t.Errorf("%d messages in the window", n)
		}
	})
}

// Targets that each have more than the publisher takes get room again one after the other, a little each. A sweep waits until
// one of them has used half of what it got, and takes along who has room by then.
func TestSweep_waitsUntilMoreHaveRoom(t *testing.T) {
	const n, each, atATime = 40, 150, 3
	onStage(t, func(ctx context.Context, s *stage) {
		store := &countingStore{Store: s.node.Store()}
		s.store, s.limits = store, Limits{Loaded: 1024, Handed: 64, HandedAll: 32 * n, Page: 128, Feed: FeedCapacity}
		s.unchecked = true // a check goes through all that is pending
		for i := range n {
			s.silent[nameOf(i)] = true
		}
		s.lead(ctx)
		s.acceptForMany(ctx, n, each, after(0))
		time.Sleep(time.Second)
		synctest.Wait()
		before, acked := store.looks.Load(), make([]int, n)
		for left := n * each; left > 0; {
			progress := left
			for i := range n {
				refs := s.got(nameOf(i))[acked[i]:]
				refs = refs[:min(len(refs), atATime)]
				if len(refs) == 0 {
					continue
				}
				acked[i] += len(refs)
				left -= len(refs)
				s.acknowledge(ctx, refs)
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			if left == progress {
				t.Fatalf("%d messages were not handed over, and nothing is", left)
			}
		}
		for i := range n {
			s.check(nameOf(i), each)
		}
		if looks := store.looks.Load() - before; looks > 8*n*each {
			t.Errorf("looked at %d entries for a backlog of %d", looks, n*each)
		}
	})
}

// Kafka writes for one target and then for another, as it happens, so at each moment a few of them are hungry. The next sweep
// rests meanwhile, so that more share it, and Kafka has enough of others to do.
func TestSweep_restsWhileFewAreHungry(t *testing.T) {
	const n, each, atATime, aMillisecond, look = 200, 200, 16, 40, time.Microsecond
	onStage(t, func(ctx context.Context, s *stage) {
		store := &countingStore{Store: s.node.Store(), takes: look}
		s.store, s.limits = store, Limits{Loaded: 1024, Handed: 64, HandedAll: 32 * n, Page: 128, Feed: FeedCapacity}
		s.unchecked = true // a check goes through all that is pending
		for i := range n {
			s.silent[nameOf(i)] = true
		}
		s.acceptForMany(ctx, n, each, after(0))
		s.lead(ctx)
		time.Sleep(time.Second)
		before, began := store.looks.Load(), time.Now()
		chance, acked := rand.New(rand.NewPCG(1, 2)), make([]int, n)
		for left := n * each; left > 0; {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			var refs []storage.Ref
			for tries := 0; tries < n && len(refs) < aMillisecond; tries++ {
				i := chance.IntN(n)
				got := s.got(nameOf(i))[acked[i]:]
				got = got[:min(len(got), atATime)]
				acked[i] += len(got)
				refs = append(refs, got...)
			}
			left -= len(refs)
			s.acknowledge(ctx, refs)
		}
		for i := range n {
			s.check(nameOf(i), each)
		}
		took := time.Since(began)
		t.Logf("looked at %d entries for %d messages, in %v", store.looks.Load()-before, n*each, took)
		if looks := store.looks.Load() - before; looks > 10*n*each {
			t.Errorf("looked at %d entries for a backlog of %d", looks, n*each)
		}
		if most := 2 * n * each / aMillisecond * time.Millisecond; took > most {
			t.Errorf("took %v, want %v at most", took, most)
		}
	})
}

// Of those that are full most are stuck, and will not be hungry: the few that work do not wait for them.
func TestSweep_restsForNoTargetThatIsStuck(t *testing.T) {
	const n, works, each, look = 100, 10, 200, time.Microsecond
	onStage(t, func(ctx context.Context, s *stage) {
		store := &countingStore{Store: s.node.Store(), takes: look}
		s.store, s.limits = store, Limits{Loaded: 1024, Handed: 64, HandedAll: 32 * n, Page: 128, Feed: FeedCapacity}
		s.unchecked = true // a check goes through all that is pending
		for i := range n {
			s.silent[nameOf(i)] = true
		}
		s.acceptForMany(ctx, n, each, after(0))
		s.lead(ctx)
		time.Sleep(time.Second)
		began, acked := time.Now(), make([]int, works)
		for left := works * each; left > 0; {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			for i := range works {
				if refs := s.got(nameOf(i))[acked[i]:]; len(refs) > 0 {
					acked[i] += len(refs)
					left -= len(refs)
					s.acknowledge(ctx, refs)
				}
			}
		}
		took := time.Since(began)
		t.Logf("took %v", took)
		if most := 150 * time.Millisecond; took > most {
			t.Errorf("%d targets that work took %v beside %d that are stuck, want %v at most", works, took, n-works, most)
		}
	})
}

// A target that is as busy as it can be is full again and again. Each time it gets room it is read where it stopped, and not
// all that was loaded ahead of the clock, for it and for others.
func TestSweep_readsForABusyTargetOnlyWhatItLeftInStorage(t *testing.T) {
	const n, beside, rounds = 4000, 8000, 84
	onStage(t, func(ctx context.Context, s *stage) {
		store := &countingStore{Store: s.node.Store()}
		s.store, s.limits = store, Limits{Loaded: 4096, Handed: 64, HandedAll: 1024, Page: 64, Feed: FeedCapacity}
		s.silent["busy"] = true
		s.accept(ctx, "fine", beside, func(i int) time.Duration { return time.Duration(i) * 500 * time.Microsecond })
		s.accept(ctx, "busy", n, func(i int) time.Duration { return time.Duration(i) * time.Millisecond })
		s.lead(ctx)
		acked := 0
		for i := range rounds { // 64 of 80 that are due in the meantime, then the others
			time.Sleep([]time.Duration{80, 20}[i%2] * time.Millisecond)
			synctest.Wait()
			refs := s.got("busy")[acked:]
			acked += len(refs)
			if len(refs) > 0 {
				s.acknowledge(ctx, refs)
			}
		}
		s.check("busy", n)
		if !slices.IsSortedFunc(s.got("busy"), storage.Ref.Compare) {
			t.Error("handed over out of order")
		}
		if looks := store.looks.Load(); looks > 3*(n+beside) {
			t.Errorf("looked at %d entries for %d messages of a busy target and %d beside", looks, n, beside)
		}
	})
}

// They heal one by one, which is the costliest: each boards the next sweep, which begins when the first of those that it is
// for has waited for gatherFor. So one that heals alone waits no longer.
func TestSweep_gathersTargetsThatHealOneAfterTheOther(t *testing.T) {
	const n, each, apart, sweeps = 100, 50, 10 * time.Millisecond, 20
	onStage(t, func(ctx context.Context, s *stage) {
		store := &countingStore{Store: s.node.Store()}
		s.store = store
		s.holdMany(ctx, n, -time.Second)
		s.acceptForMany(ctx, n, each, after(0))
		for i := range n {
			s.silent[nameOf(i)] = true // what is delivered is looked at no more
		}
		s.lead(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		before, healed := store.looks.Load(), make([]int64, n)
		for i := range n {
			healed[i] = time.Now().UnixMilli()
			s.verdicts.Put(Verdict{Target: nameOf(i)})
			time.Sleep(apart)
		}
		time.Sleep(10 * time.Second)
		for i := range n {
			s.check(nameOf(i), each)
			for _, ref := range s.got(nameOf(i)) {
				if waited := s.at[ref.Seq] - healed[i]; waited > gatherFor.Milliseconds() {
					t.Errorf("message %v was read %d ms after its target had healed", ref, waited)
				}
			}
		}
		if looks := store.looks.Load() - before; looks > (sweeps+5)*n*each {
			t.Errorf("looked at %d entries for a backlog of %d", looks, n*each)
		}
	})
}

// Many targets that take nothing share what the publisher holds for all; one more
// that works has its backlog delivered at the same time.
func TestSweep_boundsWhatThePublisherHoldsOfAllTargets(t *testing.T) {
	const n, each = 60, 5000
	onStage(t, func(ctx context.Context, s *stage) {
		for i := range n {
			s.silent[nameOf(i)] = true
		}
		s.acceptForMany(ctx, n, each, after(0))
		s.accept(ctx, "fine", 3*PageSize, func(int) time.Duration { return 0 })
		s.lead(ctx)
		time.Sleep(30 * time.Second)
		synctest.Wait() // the scheduler sleeps: what it owns can be looked at
		s.check("fine", 3*PageSize)
		if handed := s.scheduler.window.handed; handed > mostHandedAll {
			t.Errorf("%d messages handed over, want %d at most", handed, mostHandedAll)
		}
		for i := range n {
			if got := len(s.got(nameOf(i))); got < leastHanded {
				t.Errorf("%s got %d messages", nameOf(i), got)
			}
		}
	})
}

// Names are free text: of those that have nothing any more nothing is kept.
func TestScheduler_forgetsTargetsThatHaveNothing(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.lead(ctx)
		const n = 3000
		for range 3 {
			s.acceptForMany(ctx, n, 1, after(time.Second))
			s.acceptForMany(ctx, 10, 20, after(time.Second))
			time.Sleep(3 * time.Second)
		}
		s.silence(nameOf(1), true)
		s.acceptForMany(ctx, 2, 1, after(0))
		time.Sleep(time.Second)
		synctest.Wait()
		ts := &s.scheduler.targets
		if len(ts.byName) != 1 || ts.byName[nameOf(1)] == nil || len(ts.byIndex) > n {
			t.Errorf("%d targets are known, in %d places, want the one that keeps a message", len(ts.byName), len(ts.byIndex))
		}
		s.verdicts.Put(Verdict{Target: nameOf(1), Parked: true, Returned: s.got(nameOf(1))[3:]})
		time.Sleep(time.Second)
		s.silence(nameOf(1), false)
		s.verdicts.Put(Verdict{Target: nameOf(1)})
		time.Sleep(time.Second)
		synctest.Wait()
		if len(ts.byName) != 0 {
			t.Errorf("%d targets are known, want none", len(ts.byName))
		}
	})
}

// Kafka was away, and every target was parked with its share of a backlog. The rate
// is that of the scheduler, with a publisher that acknowledges at once. From level three on none of
// the backlog is claimed before, and targets are released step by step.
func BenchmarkCatchUp(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		for level := storage.LevelTwo; level <= storage.LevelThree; level++ {
			b.Run(fmt.Sprintf("targets=%d/level=%d", n, level), func(b *testing.B) { benchCatchUp(b, n, level) })
		}
	}
}

func benchCatchUp(b *testing.B, n int, level storage.Level) {
	const total = 400_000
	for range b.N {
		b.StopTimer()
		ctx, cancel := context.WithCancel(context.Background())
		s := newStage(b, ctx)
		s.unchecked = true
		s.raise(ctx, level)
		s.holdMany(ctx, n, -time.Second)
		due := time.Duration(0)
		s.acceptForMany(ctx, n, total/n, func(i int) time.Duration {
			due = time.Duration(i/100+1) * time.Millisecond // 4 s
			return due
		})
		time.Sleep(due + time.Second)
		s.lead(ctx)
		b.StartTimer()
		for i := range n {
			s.verdicts.Put(Verdict{Target: nameOf(i)})
		}
		for s.count() < total {
			time.Sleep(time.Millisecond)
		}
		b.StopTimer()
		cancel()
		<-s.ended
		if err := s.node.Close(); err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// Of two targets the publisher keeps some for good, such as dead letters that are refused: of one as many as it may have, of the
// other so many that it may have more, but is not hungry. What waits for that one need not wait for ever.
func TestSweep_readsForWhoHasRoomBesideOneThatIsFullForEver(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.lead(ctx)
		const all, kept = 10_000, 5_000
		s.silence("full", true)
		s.accept(ctx, "full", all, func(int) time.Duration { return 0 })
		time.Sleep(5 * time.Second)
		s.silence("half", true)
		s.accept(ctx, "half", all, func(int) time.Duration { return 0 })
		time.Sleep(5 * time.Second)
		handed := s.got("half")
		var runs []storage.SeqRun
		for _, ref := range handed[kept:] {
			runs = append(runs, storage.SeqRun{First: ref.Seq, Last: ref.Seq})
		}
		s.silence("half", false)
		s.propose(ctx, raftfsm.Ack{Time: time.Now().UnixMilli(), Runs: runs})
		time.Sleep(2 * mostCalm)
		if n := len(s.got("half")); n != all {
			t.Errorf("%d of %d messages handed over to a target that has room", n, all)
		}
	})
}
