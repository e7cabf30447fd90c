package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// A gate is a log that keeps claims back while it is shut.
type gate struct {
	Log
	mu   sync.Mutex
	shut chan struct{} // nil: open
}

func (g *gate) Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal {
	if _, isClaim := command.(raftfsm.ChangeClaim); isClaim {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut != nil {
			select {
			case <-shut:
			case <-ctx.Done():
			}
		}
	}
	return g.Log.Propose(ctx, command)
}

// set shuts the gate, or lets through what waits.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !open && g.shut == nil:
		g.shut = make(chan struct{})
	case open && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

// holdBacklog has a term begin with a target that is held, of which n messages are due, one each
// millisecond, and none is claimed but the first so many.
func (s *stage) holdBacklog(ctx context.Context, target string, n, claimed int) {
	s.t.Helper()
	s.raise(ctx, storage.LevelThree)
	first := time.Now().Add(-time.Duration(n) * time.Millisecond)
	s.accept(ctx, target, n, func(i int) time.Duration { return time.Until(first) + time.Duration(i)*time.Millisecond })
	through := first.UnixMilli() + int64(claimed) - 1
	s.propose(ctx, raftfsm.ChangeClaim{ClaimChange: storage.ClaimChange{Through: through, Mark: storage.Ref{Due: first.UnixMilli()},
		Set: []storage.Hold{{Target: target, Through: through, Mark: storage.Ref{Due: first.UnixMilli()}}}}})
	s.propose(ctx, raftfsm.ChangeClaim{ClaimChange: storage.ClaimChange{Through: time.Now().UnixMilli(), Mark: storage.Ref{Due: first.UnixMilli()}}})
}

// claimed returns how many of the backlog's messages are claimed, n being all of it.
func (s *stage) claimed(target string, from time.Time, n int) int {
	return int(min(s.node.Store().Through("", target)-from.UnixMilli()+int64(n)+1, int64(n)))
}

// acknowledge acknowledges what was handed over for the target.
func (s *stage) acknowledge(ctx context.Context, refs []storage.Ref) {
	var runs []storage.SeqRun
	for _, ref := range refs {
		runs = append(runs, storage.SeqRun{First: ref.Seq, Last: ref.Seq})
	}
	s.propose(ctx, raftfsm.Ack{Runs: runs})
}

// What is not claimed can still be cancelled.
func TestRelease_claimsLittleAheadOfHandover(t *testing.T) {
	const n = 40_000
	onStage(t, func(ctx context.Context, s *stage) {
		s.unchecked = true
		from := time.Now()
		s.holdBacklog(ctx, "slow", n, 100)
		s.silence("slow", true)
		s.lead(ctx)
		time.Sleep(time.Second)
		if got, claimed := len(s.got("slow")), s.claimed("slow", from, n); got != 0 || claimed != 100 {
			t.Fatalf("%d handed over and %d claimed of a target that is parked, want 0 and the 100 from before", got, claimed)
		}
		s.verdicts.Put(Verdict{Target: "slow"})
		acked := 0
		for acked < n {
			time.Sleep(100 * time.Millisecond)
			got := s.got("slow")
			if claimed := s.claimed("slow", from, n); claimed > acked+MostHanded || claimed < len(got) {
				t.Fatalf("%d claimed, with %d handed over and %d acknowledged", claimed, len(got), acked)
			}
			if len(got) == acked {
				t.Fatalf("nothing more is handed over after %d", acked)
			}
			s.acknowledge(ctx, got[acked:min(acked+1500, len(got))])
			acked = min(acked+1500, len(got))
			if holds := s.node.Store().Holds(); acked == n/2 && (len(holds) != 1 || holds[0].Mark.Compare(got[acked-3000]) < 0) {
				t.Errorf("held from %v on, want what was delivered to be left out", holds)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		s.check("slow", n)
		if holds, known := s.node.Store().Holds(), len(s.scheduler.targets.byName); len(holds) > 0 || known > 0 {
			t.Errorf("held at the end: %v; %d targets known", holds, known)
		}
	})
}

// Cancelled in time is not delivered, also when the target is about to get the message.
func TestRelease_leavesOutWhatIsCancelledBeforeItsClaim(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		log := &gate{Log: s.node}
		s.log = log
		s.holdBacklog(ctx, "slow", 1000, 100)
		s.silence("slow", true)
		s.lead(ctx)
		log.set(false)
		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(time.Second)
		got := s.got("slow")
		if len(got) != 100 {
			t.Fatalf("%d handed over of 100 that are claimed", len(got))
		}
		first := got[99].Seq + 1
		s.propose(ctx, raftfsm.Ack{Runs: []storage.SeqRun{{First: first, Last: first + 299}, {First: first + 899, Last: first + 899}}}) // dead is dead
		log.set(true)
		time.Sleep(time.Second)
		for _, ref := range s.got("slow")[100:] {
			if ref.Seq < first+300 || ref.Seq == first+899 {
				t.Errorf("message %v is handed over, though it is dead", ref)
			}
		}
		s.check("slow", 1000-301)
		s.acknowledge(ctx, s.got("slow"))
		time.Sleep(time.Second)
		synctest.Wait()
		if holds, known := s.node.Store().Holds(), len(s.scheduler.targets.byName); len(holds) > 0 || known > 0 {
			t.Errorf("held at the end: %v; %d targets known", holds, known)
		}
	})
}

// The step that was reached stays, and so does what can be cancelled beyond it. A claim that was on its
// way counts.
func TestRelease_parkedAgainKeepsTheStep(t *testing.T) {
	const n = 40_000
	for _, shut := range []bool{false, true} {
		onStage(t, func(ctx context.Context, s *stage) {
			s.unchecked = true
			log := &gate{Log: s.node}
			s.log = log
			from := time.Now()
			s.holdBacklog(ctx, "slow", n, 100)
			s.silence("slow", true)
			s.lead(ctx)
			if shut {
				log.set(false)
			}
			s.verdicts.Put(Verdict{Target: "slow"})
			time.Sleep(time.Second)
			got, before := s.got("slow"), s.claimed("slow", from, n)
			s.verdicts.Put(Verdict{Target: "slow", Parked: true, Returned: got})
			if shut {
				time.Sleep(time.Second)
				log.set(true)
			}
			time.Sleep(10 * time.Second)
			after := s.claimed("slow", from, n)
			if after > MostHanded || after < before || !shut && after != before || len(s.got("slow")) != len(got) {
				t.Errorf("%d claimed when it was parked, %d later, handed over %d and %d", before, after, len(got), len(s.got("slow")))
			}
			s.mu.Lock()
			clear(s.handed)
			s.mu.Unlock()
			s.silence("slow", false)
			s.verdicts.Put(Verdict{Target: "slow"})
			time.Sleep(10 * time.Second)
			s.check("slow", n)
		})
	}
}

// A pause takes effect at once, also for what waits for a claim.
func TestRelease_handsOverNothingOfAPausedTopic(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		log := &gate{Log: s.node}
		s.log = log
		s.holdBacklog(ctx, "slow", 1000, 100)
		s.lead(ctx)
		time.Sleep(time.Second)
		log.set(false)
		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(time.Second)
		s.pause(ctx, pause.Topic, "in.delay")
		log.set(true)
		time.Sleep(10 * time.Second)
		s.check("slow", 100)
		s.resume(ctx, pause.Topic, "in.delay")
		time.Sleep(10 * time.Second)
		s.check("slow", 1000)
	})
}

// A pause keeps a claim on its way from raising the hold. The scheduler must not believe that it has.
func TestRelease_believesNoStepThatAPauseHasPrevented(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		log := &gate{Log: s.node}
		s.log = log
		from := time.Now()
		s.holdBacklog(ctx, "slow", 1000, 100)
		s.silence("slow", true)
		s.lead(ctx)
		time.Sleep(time.Second)
		log.set(false)
		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "slow", Parked: true, Returned: s.got("slow")})
		time.Sleep(time.Second)
		s.pause(ctx, pause.Target, "slow")
		log.set(true)
		time.Sleep(10 * time.Second)
		if claimed := s.claimed("slow", from, 1000); claimed != 100 {
			t.Fatalf("%d claimed of a target that is paused, want 100 as before", claimed)
		}
		log.set(false)
		s.verdicts.Put(Verdict{Target: "slow"})
		s.resume(ctx, pause.Target, "slow")
		time.Sleep(10 * time.Second)
		if got := s.got("slow")[100:]; len(got) != 100 { // again what came back
			t.Errorf("%d handed over, want the 100 that are claimed", len(got))
		}
		s.mu.Lock()
		clear(s.handed)
		s.mu.Unlock()
		log.set(true)
		time.Sleep(10 * time.Second)
		s.check("slow", 900)
	})
}

// The next leader goes on with the step that was reached, and reads again only what was not delivered.
func TestRelease_goesOnInTheNextTerm(t *testing.T) {
	const n = 40_000
	onStage(t, func(ctx context.Context, s *stage) {
		s.unchecked = true
		store := &countingStore{Store: s.node.Store()}
		s.store = store
		from := time.Now()
		s.holdBacklog(ctx, "slow", n, 100)
		s.silence("slow", true)
		first, end := context.WithCancel(ctx)
		s.lead(first)
		s.verdicts.Put(Verdict{Target: "slow"})
		for range 3 {
			time.Sleep(time.Second)
			s.acknowledge(ctx, s.got("slow"))
		}
		time.Sleep(time.Second)
		end()
		synctest.Wait()
		before := s.claimed("slow", from, n)
		if before < 3*MostHanded || before > 4*MostHanded {
			t.Errorf("%d are claimed, with %d delivered", before, 3*MostHanded)
		}
		s.acknowledge(ctx, s.got("slow"))
		s.lead(ctx)
		time.Sleep(time.Second)
		if after := s.claimed("slow", from, n); after != before {
			t.Errorf("%d are claimed in the new term, %d were", after, before)
		}
		looks := store.looks.Load()
		s.silence("slow", false)
		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(10 * time.Second)
		s.check("slow", n)
		if looks = store.looks.Load() - looks; looks > 3*MostHanded { // those in memory count twice
			t.Errorf("looked at %d entries for the %d that were left", looks, n-4*MostHanded)
		}
	})
}

// Targets have far more due than they take at a time, park, heal and are paused at any moment, also while
// a step is on its way, as are topics, and terms follow each other. checkMarks looks after each
// pass.
func TestRelease_losesNothingInAnyOrderOfEvents(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onStage(t, func(ctx context.Context, s *stage) { releaseAtRandom(ctx, s, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func releaseAtRandom(ctx context.Context, s *stage, random *rand.Rand) {
	s.raise(ctx, storage.LevelThree)
	s.limits = Limits{Loaded: 512, Handed: 12, HandedAll: 48, Page: 16}
	log := &gate{Log: s.node}
	s.log = log
	targets, pauses := []string{"a", "b", "c"}, random.IntN(2) == 0
	var lanes *crowd
	term, end := context.WithCancel(ctx)
	lead := func() {
		end()
		synctest.Wait()
		lanes = &crowd{node: s.node, lanes: make(map[string]*crowdLane)}
		s.publisher = lanes
		term, end = context.WithCancel(ctx)
		feed := s.begin(term)
		lanes.verdicts = s.verdicts
		s.run(term, feed)
	}
	lead()
	defer func() { end() }()
	for range 150 {
		target := targets[random.IntN(len(targets))]
		switch what := random.IntN(20); {
		case what == 0:
			lead()
		case what < 4:
			s.acceptBy(ctx, delayTopics[random.IntN(len(delayTopics))], target, 20+random.IntN(60), func(int) time.Duration {
				return time.Duration(random.IntN(4000)-1000) * time.Millisecond
			})
		case what < 8:
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		case what == 8 && pauses:
			s.pauseAtRandom(ctx, targets, random)
		case what < 11:
			log.set(random.IntN(2) == 0)
		default:
			lanes.act(target, random)
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		}
		if s.t.Failed() {
			break
		}
	}
	log.set(true)
	for _, p := range s.node.Store().Pauses() {
		s.propose(ctx, raftfsm.Resume{Kind: p.Kind, Name: p.Name})
	}
	for patience := 30; s.node.Store().Pending() > 0 && !s.t.Failed(); patience-- {
		if patience == 0 {
			s.t.Fatalf("%d messages are never delivered", s.node.Store().Pending())
		}
		lanes.healAll()
		time.Sleep(time.Minute)
	}
}

// claimedOf returns how many of the messages that wait are claimed.
func (s *stage) claimedOf(topic, target string) (n int) {
	s.t.Helper()
	store := s.node.Store()
	items, _, _, err := store.Scan(storage.Ref{}, storage.Ref{}, 1<<20, nil, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, item := range items {
		if item.Topic == topic && item.Target == target && store.Claimed(item.Ref, topic, target) {
			n++
		}
	}
	return n
}

// A target is parked while a delay topic is paused, and that is resumed first. What fell due in between is not
// claimed as the topic's hold rises, but step by step when the target is fed again, whoever leads; parked
// again it keeps the step that it has reached. All of it comes in order.
func TestRelease_stepsThroughWhatATopicBroughtThatWasResumedBefore(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		const n = 3 * MostHanded
		s.unchecked = true // a check goes through all that is pending
		s.silence("slow", true)
		s.pause(ctx, pause.Topic, "a.delay")
		term, end := context.WithCancel(ctx)
		s.lead(term)
		for first := 0; first < n; first += n / 3 {
			s.acceptBy(ctx, "a.delay", "slow", n/3, func(i int) time.Duration { return time.Duration(first+i) * time.Millisecond })
		}
		s.acceptBy(ctx, "b.delay", "slow", 1, every(time.Minute))
		time.Sleep(2 * time.Minute)
		s.verdicts.Put(Verdict{Target: "slow", Parked: true, Returned: s.got("slow")})
		time.Sleep(time.Second)
		s.mu.Lock()
		clear(s.handed)
		s.mu.Unlock()

		s.resume(ctx, pause.Topic, "a.delay")
		time.Sleep(time.Minute)
		if got := s.claimedOf("a.delay", "slow"); got != 0 || len(s.node.Store().TopicHolds()) != 0 {
			t.Fatalf("%d messages are claimed of a target that is parked all along; topics held: %v", got, s.node.Store().TopicHolds())
		}
		end = s.restart(ctx, end)
		time.Sleep(time.Minute)
		if got := s.claimedOf("a.delay", "slow"); got != 0 {
			t.Fatalf("%d messages are claimed as a new term begins", got)
		}

		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(time.Minute)
		step, handed := s.claimedOf("a.delay", "slow"), s.got("slow")
		if len(handed) != MostHanded || step != MostHanded {
			t.Fatalf("%d messages claimed and %d handed over, want %d of both", step, len(handed), MostHanded)
		}
		s.verdicts.Put(Verdict{Target: "slow", Parked: true, Returned: handed})
		time.Sleep(time.Minute)
		end = s.restart(ctx, end)
		time.Sleep(time.Minute)
		if got := s.claimedOf("a.delay", "slow"); got != step {
			t.Errorf("parked again %d are claimed, want the %d from before", got, step)
		}

		s.mu.Lock()
		clear(s.handed)
		s.mu.Unlock()
		s.silence("slow", false)
		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(time.Minute)
		s.check("slow", n+1)
		if store := s.node.Store(); store.PauseBounds().Len()+len(store.Holds()) > 0 {
			t.Errorf("%d bounds and holds %v at the end", store.PauseBounds().Len(), store.Holds())
		}
		end()
	})
}
