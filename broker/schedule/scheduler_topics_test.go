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

// A slow target with all of many pages delays others of a topic that comes back only by looking past it: whoever is due is
// found, be it accepted later.
func TestPause_bringsATopicBackPastATargetThatHasEnough(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.unchecked = true // a check goes through all that is pending
		s.silence("slow", true)
		s.pause(ctx, pause.Topic, "a.delay")
		s.lead(ctx)
		const many = 8 * PageSize
		s.acceptBy(ctx, "a.delay", "slow", many, every(time.Millisecond))
		s.acceptBy(ctx, "a.delay", "quick", 10, func(i int) time.Duration { return many*time.Millisecond + time.Duration(i)*time.Second })
		<-time.After(many*time.Millisecond + 5*time.Second)
		s.resume(ctx, pause.Topic, "a.delay")
		<-time.After(10 * time.Second)
		if got := len(s.got("quick")); got != 10 {
			t.Errorf("%d messages of 10 handed over beside a target that has enough", got)
		}
		s.acceptBy(ctx, "a.delay", "late", 1, every(time.Millisecond))
		<-time.After(2 * time.Second)
		if got := len(s.got("late")); got != 1 {
			t.Error("what was accepted since waits for the target that has enough")
		}
		if got := len(s.got("slow")); got != MostHanded {
			t.Errorf("%d messages handed over to a target that acknowledges none, want %d", got, MostHanded)
		}
	})
}

// A topic that comes back is claimed step by step, as fast as its target takes it. Pausing it again
// keeps the step, and what was not claimed can still be cancelled.
func TestPause_releasesATopicStepByStep(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.unchecked = true // a check goes through all that is pending
		s.silence("slow", true)
		s.pause(ctx, pause.Topic, "a.delay")
		term, end := context.WithCancel(ctx)
		s.lead(term)
		const batch, batches = 10_000, 6
		for b := range batches {
			s.acceptBy(ctx, "a.delay", "slow", batch, func(i int) time.Duration { return time.Duration(b*batch+i) * time.Millisecond })
		}
		first := s.node.Store().State().NextSeq - batch*batches
		<-time.After(time.Hour)
		s.resume(ctx, pause.Topic, "a.delay")
		claimed := func() (n int) {
			through := s.node.Store().Through("a.delay", "slow")
			items, _, _, err := s.node.Store().Scan(storage.Ref{}, storage.Ref{}, batch*batches+1, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items {
				if item.Due <= through {
					n++
				}
			}
			return n
		}
		<-time.After(time.Minute)
		if n, handed := claimed(), len(s.got("slow")); handed < MostHanded || n > handed+2*PageSize {
			t.Errorf("%d messages claimed, %d handed over", n, handed)
		}
		s.pause(ctx, pause.Topic, "a.delay")
		n := claimed()
		s.silence("slow", false)
		s.propose(ctx, raftfsm.Ack{Runs: []storage.SeqRun{{First: first, Last: first + uint64(len(s.got("slow"))) - 1}}})
		end = s.restart(ctx, end)
		<-time.After(time.Minute)
		if got := len(s.got("slow")); got > n {
			t.Errorf("%d messages handed over, %d were claimed when the topic was paused again", got, n)
		}
		s.resume(ctx, pause.Topic, "a.delay")
		<-time.After(time.Hour)
		s.check("slow", batch*batches)
		end()
	})
}

// Of a topic with several targets a slow one, and one that is parked, do not keep the others waiting.
func TestPause_comesBackForEachTargetByItself(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.unchecked = true
		s.silence("slow", true)
		s.silence("stuck", true)
		s.lead(ctx)
		s.accept(ctx, "stuck", 1, every(time.Millisecond))
		<-time.After(time.Second)
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: s.got("stuck")})
		s.pause(ctx, pause.Topic, "a.delay")
		const n = MostHanded + 3*PageSize
		for _, target := range []string{"slow", "stuck"} {
			s.acceptBy(ctx, "a.delay", target, n, every(time.Millisecond))
		}
		s.acceptBy(ctx, "a.delay", "fine", n/10, every(10*time.Millisecond))
		<-time.After(time.Minute)
		s.resume(ctx, pause.Topic, "a.delay")
		s.accept(ctx, "fine", 10, every(time.Hour))
		<-time.After(time.Minute)
		s.check("fine", n/10)
		if got := len(s.got("slow")); got != MostHanded {
			t.Errorf("%d messages handed over for the slow target, want %d", got, MostHanded)
		}
		s.silence("slow", false)
		s.propose(ctx, raftfsm.Ack{Runs: runsOf(s.got("slow"))})
		<-time.After(time.Minute)
		s.check("slow", n)
		s.silence("stuck", false)
		s.mu.Lock()
		delete(s.handed, "stuck")
		s.mu.Unlock()
		s.verdicts.Put(Verdict{Target: "stuck"})
		<-time.After(time.Minute)
		s.check("stuck", n+1)
	})
}

func runsOf(refs []storage.Ref) (runs []storage.SeqRun) {
	for _, ref := range refs {
		runs = append(runs, storage.SeqRun{First: ref.Seq, Last: ref.Seq})
	}
	return runs
}

// Names of delay topics are free text over HTTP. Those of which nothing is in the window are forgotten, and the others are told
// apart as before.
func TestTopics_forgetsNamesThatNoMessageHas(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.unchecked = true // a check goes through all that is pending
		s.lead(ctx)
		named := func(prefix string, n int, target string, after time.Duration) {
			var c raftfsm.Operate
			c.Time = time.Now().UnixMilli()
			for i := range n {
				c.Operations = append(c.Operations, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: storage.Entry{
					Due: c.Time + after.Milliseconds(), Target: target, Topic: fmt.Sprintf("%s-%d.delay", prefix, i), Body: []byte("body")}})
			}
			s.propose(ctx, c)
		}
		const staying, rounds, each = 100, 10, 2000
		named("stays", staying, "late", time.Minute)
		for round := range rounds {
			named(fmt.Sprint("goes-", round), each, "orders", time.Millisecond)
			<-time.After(time.Second)
		}
		if n := len(s.scheduler.topics.names); n > 3*each {
			t.Errorf("%d names are kept of %d", n, staying+rounds*each)
		}
		s.pause(ctx, pause.Topic, "stays-7.delay")
		<-time.After(2 * time.Minute)
		if orders, late := len(s.got("orders")), len(s.got("late")); orders != rounds*each || late != staying-1 {
			t.Errorf("%d of %d and %d of %d handed over, one of the latter paused", orders, rounds*each, late, staying)
		}
	})
}
