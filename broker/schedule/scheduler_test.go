package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A stage is a scheduler on a real one-node group, with a publisher that records
// what it is handed and acknowledges when the test says so.
type stage struct {
	t         testing.TB
	store     Store // these two are the node's, unless a test counts
	log       Log
	unchecked bool
	ended     chan struct{} // closed when the last scheduler has ended
	node      *node.Node
	scheduler *Scheduler
	publisher Publisher // the stage itself, unless a test has another
	verdicts  *mailbox.Mailbox[Verdict]
	searched  atomic.Bool
	strays    bool // some were left behind on purpose: the check waits until they are found
	passes    atomic.Uint64
	now       func() time.Time // time.Now, unless a test has another clock
	capacity  int              // of the feed
	limits    Limits
	through   map[string]int64 // how far each target was claimed when it was looked at
	next      int64

	mu        sync.Mutex
	handed    map[string][]storage.Ref // by target, in order
	at        map[uint64]int64         // by seq
	confirmed []string
	silent    map[string]bool // targets that are not acknowledged
}

func newStage(t testing.TB, ctx context.Context) *stage {
	s := &stage{t: t, node: nodetest.Open(t, ctx), handed: map[string][]storage.Ref{}, at: map[uint64]int64{}, silent: map[string]bool{}, through: map[string]int64{}, capacity: FeedCapacity, now: time.Now}
	s.publisher, s.store, s.log = s, s.node.Store(), s.node
	s.searched.Store(true)
	s.propose(ctx, raftfsm.SetPositions{Surveyed: true, Sets: []raftfsm.PositionSet{{
		Position: storage.Position{Topic: "in.delay", Epoch: -1}, From: raftfsm.FromAbsent,
	}}})
	return s
}

// lead starts a scheduler as a new term would, and checks it after every pass.
func (s *stage) lead(ctx context.Context) {
	s.t.Helper()
	s.run(ctx, s.begin(ctx))
}

// begin makes a scheduler that does not run yet.
func (s *stage) begin(ctx context.Context) *raftfsm.Feed {
	s.t.Helper()
	feed := s.node.Subscribe(s.capacity)
	if err := s.node.Barrier(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.verdicts = mailbox.New[Verdict]()
	s.scheduler = New(Options{
		Store: s.store, Feed: feed, Log: s.log, Publisher: onlyClaimed{s.publisher, s}, Verdicts: s.verdicts, Searched: &s.searched,
		Now: s.now, Report: report.New(), Limits: s.limits, Logger: slog.New(slog.DiscardHandler),
	})
	return feed
}

func (s *stage) run(ctx context.Context, feed *raftfsm.Feed) {
	scheduler, wake, ended := s.scheduler, time.NewTimer(0), make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		defer feed.Close()
		for ctx.Err() == nil {
			more, err := scheduler.pass(ctx)
			if err == nil && !s.unchecked {
				s.checkMarks(scheduler)
			}
			if err == nil && !more {
				err = scheduler.wait(ctx, wake)
			}
			if err != nil && ctx.Err() == nil {
				s.t.Errorf("scheduler ended: %v", err)
				return
			}
		}
	}()
}

func (s *stage) propose(ctx context.Context, c raftfsm.Command) raftfsm.Result {
	s.t.Helper()
	result, err := s.node.Propose(ctx, c).Wait(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// raise raises the feature level, and opens the ids if it has any.
func (s *stage) raise(ctx context.Context, level storage.Level) {
	s.t.Helper()
	s.propose(ctx, raftfsm.RaiseLevel{Level: level})
	if level >= storage.LevelThree {
		s.propose(ctx, raftfsm.OpenIDs{UpTo: s.node.Store().NextSeq() - 1})
	}
}

// accept schedules n messages for the target, the i-th due at due(i).
func (s *stage) accept(ctx context.Context, target string, n int, due func(i int) time.Duration) {
	s.t.Helper()
	s.acceptBy(ctx, "in.delay", target, n, due)
}

// acceptBy does so for messages that came by the topic.
func (s *stage) acceptBy(ctx context.Context, topic, target string, n int, due func(i int) time.Duration) {
	s.t.Helper()
	now := time.Now()
	part := raftfsm.Part{Topic: topic, From: s.next, Next: s.next + int64(n), Epoch: -1}
	for i := range n {
		part.Entries = append(part.Entries, storage.Entry{
			Due: now.Add(due(i)).UnixMilli(), Target: target, Body: []byte("body"),
		})
	}
	s.next += int64(n)
	result := s.propose(ctx, raftfsm.Ingest{Time: now.UnixMilli(), Parts: []raftfsm.Part{part}})
	if !result.PartsApplied[0] {
		s.t.Fatal("part was not applied")
	}
}

func (s *stage) Hand(due []DueMessage) {
	s.mu.Lock()
	var acks []storage.SeqRun
	for _, d := range due {
		s.handed[d.Target] = append(s.handed[d.Target], d.Ref)
		s.at[d.Seq] = time.Now().UnixMilli()
		if !s.silent[d.Target] {
			acks = append(acks, storage.SeqRun{First: d.Seq, Last: d.Seq})
		}
	}
	s.mu.Unlock()
	if len(acks) > 0 {
		s.node.Propose(context.Background(), raftfsm.Ack{Runs: acks})
	}
}

// silence says whether what is handed over for the target is never acknowledged.
func (s *stage) silence(target string, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[target] = silent
}

func (s *stage) Confirm(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = append(s.confirmed, target)
}

func (s *stage) got(target string) []storage.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]storage.Ref(nil), s.handed[target]...)
}

// count returns how many messages were handed over.
func (s *stage) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// check holds that exactly n messages came, each once, in order and not early.
func (s *stage) check(target string, n int) {
	s.t.Helper()
	got := s.got(target)
	if len(got) != n {
		s.t.Fatalf("%d messages handed over for %s, want %d", len(got), target, n)
	}
	seen := map[uint64]bool{}
	for i, ref := range got {
		if seen[ref.Seq] {
			s.t.Fatalf("message %d was handed over twice", ref.Seq)
		}
		seen[ref.Seq] = true
		if i > 0 && ref.Compare(got[i-1]) < 0 {
			s.t.Fatalf("message %v came after %v", ref, got[i-1])
		}
		if s.at[ref.Seq] < ref.Due {
			s.t.Fatalf("message %v came early, at %d", ref, s.at[ref.Seq])
		}
	}
}

func onStage(t *testing.T, play func(ctx context.Context, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		s := newStage(t, ctx)
		defer func() { // also after Fatal, which else hides behind a panic of the bubble
			cancel()
			synctest.Wait()
			if err := s.node.Close(); err != nil {
				t.Error(err)
			}
		}()
		play(ctx, s)
	})
}

func TestScheduler_handsOverInOrderAtTheMillisecond(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.lead(ctx)
		s.accept(ctx, "out", 3000, func(i int) time.Duration { return time.Duration((i*7919)%3000) * time.Millisecond * 2 })
		time.Sleep(7 * time.Second)
		s.check("out", 3000)
		for seq, at := range s.at {
			for _, ref := range s.handed["out"] {
				if ref.Seq == seq && at-ref.Due > 100 {
					t.Fatalf("message due at %d came %d ms late", ref.Due, at-ref.Due)
				}
			}
		}
	})
}

func TestScheduler_handsOverMoreThanItHoldsAtOneInstant(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.lead(ctx)
		const batch = 20_000
		for range 6 {
			s.accept(ctx, "flood", batch, func(int) time.Duration { return 10 * time.Second })
		}
		s.accept(ctx, "other", 10, func(int) time.Duration { return 10 * time.Second })
		time.Sleep(time.Minute)
		s.check("flood", 6*batch)
		s.check("other", 10)
		if pending := s.node.Store().Pending(); pending != 0 {
			t.Errorf("%d messages pending, want 0", pending)
		}
	})
}

// The wheel may yield what was not due yet when the same pass looked at the clock.
func TestScheduler_isNotLateForWhatBecameDueWhileItLooked(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		var ahead atomic.Bool // from its second reading on, the clock is a microsecond ahead
		var armed atomic.Int64
		s.now = func() time.Time {
			if armed.Load() > 0 && armed.Add(1) > 2 {
				ahead.Store(true)
			}
			if ahead.Load() {
				return time.Now().Add(time.Microsecond)
			}
			return time.Now()
		}
		s.lead(ctx)
		due := time.Now().Truncate(time.Second).Add(5 * time.Second)
		s.accept(ctx, "out", 1, func(int) time.Duration { return time.Until(due) })
		time.Sleep(time.Until(due.Add(-time.Microsecond)))
		armed.Store(1)
		s.accept(ctx, "out", 1, func(int) time.Duration { return time.Hour }) // a pass for another reason
		time.Sleep(3 * time.Second)
		if got := s.got("out"); len(got) != 1 || s.at[got[0].Seq] > due.UnixMilli()+2 {
			t.Errorf("handed over %v at %v, due %d", got, s.at, due.UnixMilli())
		}
	})
}

func TestScheduler_keepsNearMessagesWhenFarOnesFillTheWindow(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.lead(ctx)
		for range 5 {
			s.accept(ctx, "far", 20_000, func(i int) time.Duration { return time.Duration(i) * time.Hour })
		}
		s.accept(ctx, "near", 100, func(i int) time.Duration { return time.Duration(i) * 10 * time.Millisecond })
		time.Sleep(5 * time.Second)
		s.check("near", 100)
		synctest.Wait() // the scheduler sleeps: what it owns can be looked at
		if kept := len(s.scheduler.window.kept); kept > mostLoaded+MostHanded {
			t.Errorf("%d messages kept in memory, want %d at most", kept, mostLoaded+MostHanded)
		}
	})
}

func TestScheduler_parkedTargetDelaysNobodyAndResumesInOrder(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["stuck"] = true
		s.lead(ctx)
		for i := range 10 {
			s.accept(ctx, "stuck", 2000, func(int) time.Duration { return time.Duration(i) * time.Second })
			s.accept(ctx, "fine", 100, func(int) time.Duration { return time.Duration(i) * time.Second })
		}
		time.Sleep(5 * time.Second)
		returned := s.got("stuck")
		if len(returned) == 0 || len(returned) > MostHanded {
			t.Fatalf("%d messages of the stuck target handed over", len(returned))
		}
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: returned})
		time.Sleep(20 * time.Second)
		s.check("fine", 1000)
		if holds := s.node.Store().Holds(); len(holds) != 1 || holds[0].Target != "stuck" {
			t.Fatalf("holds = %v, want one of the stuck target", holds)
		}

		s.mu.Lock()
		s.handed["stuck"], s.silent["stuck"] = nil, false
		s.mu.Unlock()
		s.verdicts.Put(Verdict{Target: "stuck"})
		time.Sleep(20 * time.Second)
		s.check("stuck", 20_000)
		if pending := s.node.Store().Pending(); pending != 0 {
			t.Errorf("%d messages pending, want 0", pending)
		}
	})
}

func TestScheduler_newTermTakesOverWhatWasParkedAndWhatWaits(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.silent["stuck"] = true
		first, end := context.WithCancel(ctx)
		s.lead(first)
		s.accept(ctx, "stuck", 1000, func(i int) time.Duration { return time.Duration(i) * time.Millisecond })
		s.accept(ctx, "out", 1000, func(i int) time.Duration { return time.Duration(i) * 10 * time.Millisecond })
		time.Sleep(3 * time.Second)
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true, Returned: s.got("stuck")})
		time.Sleep(2 * time.Second)
		end()
		synctest.Wait()

		s.confirmed = nil
		s.lead(ctx)
		time.Sleep(10 * time.Second)
		s.check("out", 1000)
		if fmt.Sprint(s.confirmed) != "[stuck]" {
			t.Fatalf("confirmed %v, want the stuck target", s.confirmed)
		}
		if parked := s.scheduler.cfg.Report.Read().Parked; fmt.Sprint(parked) != "[stuck]" {
			t.Errorf("%v are told to be parked, want the stuck target", parked)
		}
		s.mu.Lock()
		s.handed["stuck"], s.silent["stuck"] = nil, false
		s.mu.Unlock()
		s.verdicts.Put(Verdict{Target: "stuck"})
		time.Sleep(5 * time.Second)
		s.check("stuck", 1000)
	})
}

// A node that has nothing to do costs next to nothing: a look a second, since the clock may be set.
func TestScheduler_sleepsWhileNothingIsDue(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.lead(ctx)
		s.accept(ctx, "later", 100, after(time.Hour))
		s.accept(ctx, "soon", 100, after(time.Second))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		before := s.passes.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if passes := s.passes.Load() - before; passes > 61 {
			t.Errorf("%d passes in a minute in which nothing was due, want one a second", passes)
		}
		s.check("soon", 100)
	})
}
