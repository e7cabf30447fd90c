package schedule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// checkOnTime holds that n messages came, each within ClaimLead.
func (s *stage) checkOnTime(target string, n int) {
	s.t.Helper()
	synctest.Wait()
	got := s.got(target)
	if len(got) != n {
		s.t.Errorf("%d of %d handed over", len(got), n)
	}
	for _, ref := range got {
		if late := s.at[ref.Seq] - ref.Due; late > ClaimLead {
			s.t.Fatalf("message due at %d came %d ms late", ref.Due, late)
		}
	}
}

// What the publisher never acknowledges, and what is behind it, keeps nobody waiting.
func TestScheduler_targetThatTakesNothingDelaysNoOther(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["stuck"] = true
		s.lead(ctx)
		s.accept(ctx, "stuck", MostHanded+10, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.accept(ctx, "fine", 10, func(i int) time.Duration { return time.Duration(10*(i+1)) * time.Second })
		time.Sleep(time.Hour)
		s.checkOnTime("fine", 10)
	})
}

func TestScheduler_targetWithABacklogDelaysNoOther(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["slow"] = true
		s.lead(ctx)
		s.accept(ctx, "slow", 40_000, func(int) time.Duration { return time.Second })
		s.accept(ctx, "fine", 100, func(i int) time.Duration { return 2*time.Second + time.Duration(i)*300*time.Millisecond })
		acked := 0
		for range 320 {
			time.Sleep(100 * time.Millisecond)
			var runs []storage.SeqRun
			for _, ref := range s.got("slow")[acked:] {
				if len(runs) < 100 {
					runs = append(runs, storage.SeqRun{First: ref.Seq, Last: ref.Seq})
				}
			}
			acked += len(runs)
			s.propose(ctx, raftfsm.Ack{Runs: runs})
		}
		s.checkOnTime("fine", 100)
	})
}

// What a target is handed and has not acknowledged is as much as it may have, neither less nor more, whether it flows
// or catches up.
func TestScheduler_handsATargetAsMuchAsItMayHave(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.limits = Limits{Loaded: 400, Handed: 40, HandedAll: 640, Page: 20, Feed: FeedCapacity}
		s.silent["slow"] = true
		s.lead(ctx)
		s.accept(ctx, "slow", 300, func(int) time.Duration { return 0 })
		for acked := 0; acked <= 200; acked += 25 {
			time.Sleep(time.Second)
			got := s.got("slow")
			if len(got)-acked != s.limits.Handed {
				t.Fatalf("the publisher has %d messages, want %d", len(got)-acked, s.limits.Handed)
			}
			var runs []storage.SeqRun
			for _, ref := range got[acked : acked+25] {
				runs = append(runs, storage.SeqRun{First: ref.Seq, Last: ref.Seq})
			}
			s.propose(ctx, raftfsm.Ack{Runs: runs})
		}
	})
}

// Half of what a target may have is with the publisher for good; the rest is fed on.
func TestScheduler_feedsATargetThatKeepsMuchForLong(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		const kept = MostHanded - PageSize
		s.silent["out"] = true
		s.lead(ctx)
		s.accept(ctx, "out", kept, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.mu.Lock()
		s.silent["out"] = false
		s.mu.Unlock()
		s.accept(ctx, "out", 3*PageSize, func(int) time.Duration { return 0 })
		time.Sleep(time.Minute)
		if got := len(s.got("out")); got != kept+3*PageSize {
			t.Errorf("%d handed over, want %d", got, kept+3*PageSize)
		}
	})
}

// A message of another target that has been with the publisher for long does not
// bring the mark of a parked one back to it.
func TestScheduler_parkedTargetIsReadFromItsOwnFirstMessage(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["kept"], s.silent["stuck"] = true, true
		s.lead(ctx)
		s.accept(ctx, "kept", 1, func(int) time.Duration { return 0 })
		time.Sleep(time.Hour)
		s.accept(ctx, "stuck", 2, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		handed := s.got("stuck")
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: handed})
		time.Sleep(time.Second)
		holds := s.node.Store().Holds()
		if len(holds) != 1 || holds[0].Mark.Compare(handed[0]) != 0 {
			t.Errorf("held from %v, want %v", holds, handed[0])
		}
	})
}

// A lateAcks is a publisher whose Acks are in the log 0.4 s after the hand-over: two commits while the kernel writes back.
type lateAcks struct{ *stage }

func (p lateAcks) Hand(due []DueMessage) {
	acks := make([]storage.SeqRun, 0, len(due))
	p.mu.Lock()
	for _, d := range due {
		p.handed[d.Target] = append(p.handed[d.Target], d.Ref)
		p.at[d.Seq] = time.Now().UnixMilli()
		if !p.silent[d.Target] {
			acks = append(acks, storage.SeqRun{First: d.Seq, Last: d.Seq})
		}
	}
	p.mu.Unlock()
	time.AfterFunc(400*time.Millisecond, func() { p.node.Propose(context.Background(), raftfsm.Ack{Runs: acks}) })
}

// Forty thousand a second go to one target, which takes all at once. MostHanded in 0.4 s would be half of that, and
// what comes in would wait longer and longer.
func TestScheduler_handsABusyTargetAsMuchAsItTakesWhileAcksAreSlow(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.publisher, s.unchecked = lateAcks{s}, true
		s.lead(ctx)
		const each, rounds = 400, 1000
		most := 0
		for i := range rounds {
			s.accept(ctx, "out", each, func(int) time.Duration { return 0 })
			time.Sleep(10 * time.Millisecond)
			if i > rounds/2 {
				most = max(most, (i+1)*each-len(s.got("out")))
			}
		}
		if most > 10*each {
			t.Errorf("%d messages wait that were due more than 0.1 s before", most)
		}
		time.Sleep(10 * time.Second)
		s.check("out", each*rounds)
	})
}

// It keeps what it was handed for what it took before, and is handed no more; others find room.
func TestScheduler_busyTargetThatStopsLeavesRoomForOthers(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.publisher, s.unchecked = lateAcks{s}, true
		s.lead(ctx)
		const each, rounds = 600, 200
		for range rounds {
			s.accept(ctx, "out", each, func(int) time.Duration { return 0 })
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(350 * time.Millisecond) // of what it takes something is left, or it would be forgotten
		s.silence("out", true)
		s.accept(ctx, "out", 70_000, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		kept := len(s.got("out")) - each*rounds
		if least, most := 2*MostHanded, mostHandedAll/3+PageSize; kept < least || kept > most {
			t.Errorf("the target keeps %d, want %d to %d", kept, least, most)
		}
		s.accept(ctx, "fine", MostHanded, func(int) time.Duration { return 0 })
		time.Sleep(time.Second)
		s.checkOnTime("fine", MostHanded)
	})
}
