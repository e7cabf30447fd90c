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

// openIDs brings the group to the level of ids.
func (s *stage) openIDs(ctx context.Context) {
	s.t.Helper()
	s.raise(ctx, storage.LevelThree)
}

// operate asks for one thing, for an id of the first delay topic, and returns the answer.
func (s *stage) operate(ctx context.Context, verb raftfsm.Verb, id, target string, due time.Time) raftfsm.Answer {
	s.t.Helper()
	return s.operateBy(ctx, delayTopics[0], verb, id, target, due)
}

func (s *stage) operateBy(ctx context.Context, topic string, verb raftfsm.Verb, id, target string, due time.Time) raftfsm.Answer {
	s.t.Helper()
	o := raftfsm.Operation{Verb: verb, Entry: storage.Entry{Topic: topic, ID: id}}
	if verb != raftfsm.Cancel {
		o.Entry.Due, o.Entry.Target, o.Entry.Body = due.UnixMilli(), target, []byte("body")
	}
	return s.propose(ctx, raftfsm.Operate{Time: s.now().UnixMilli(), Operations: []raftfsm.Operation{o}}).Answers[0][0]
}

// A closedLog lets no claim through until it is opened.
type closedLog struct {
	Log
	opened chan struct{}
}

func (l closedLog) Propose(ctx context.Context, c raftfsm.Command) *raftfsm.Proposal {
	select {
	case <-l.opened:
	case <-ctx.Done():
	}
	return l.Log.Propose(ctx, c)
}

// Until a claim covers it a message can be cancelled, be it past its time: it is in the wheel,
// or out of it and waits for the claim.
func TestScheduler_dropsWhatIsCancelledBeforeItsClaim(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.openIDs(ctx)
		log := closedLog{s.log, make(chan struct{})}
		s.log = log
		s.lead(ctx)
		soon := s.now().Add(time.Second)
		for _, id := range []string{"waits", "moves", "goes", "stays"} {
			s.operate(ctx, raftfsm.Schedule, id, "out", soon)
		}
		later := s.operate(ctx, raftfsm.Schedule, "later", "out", soon.Add(time.Hour))
		time.Sleep(2 * time.Second)
		synctest.Wait() // the scheduler sleeps: what it owns can be looked at
		if ripe := len(s.scheduler.window.ripe); ripe != 4 || s.count() > 0 {
			t.Fatalf("%d messages wait for a claim, %d were handed over", ripe, s.count())
		}
		for _, id := range []string{"waits", "later"} {
			if a := s.operate(ctx, raftfsm.Cancel, id, "", time.Time{}); a.Code != raftfsm.WasCancelled {
				t.Errorf("%s is pending and not claimed: %+v", id, a)
			}
		}
		moved := s.operate(ctx, raftfsm.Change, "moves", "elsewhere", soon.Add(time.Minute))
		if moved.Code != raftfsm.Superseded {
			t.Errorf("moved: %+v", moved)
		}
		again := s.operate(ctx, raftfsm.Schedule, "goes", "out", soon)
		close(log.opened)
		time.Sleep(time.Second)
		if got := s.got("out"); len(got) != 2 || got[0].Seq != 4 || got[1].Seq != again.Seq {
			t.Errorf("handed over %v, want messages 4 and %d", got, again.Seq)
		}
		if a := s.operate(ctx, raftfsm.Cancel, "stays", "", time.Time{}); a.Code == raftfsm.WasCancelled {
			t.Errorf("what was handed over was cancelled: %+v", a)
		}
		time.Sleep(2 * time.Hour)
		if got := s.got("elsewhere"); len(got) != 1 || got[0].Seq != moved.Seq || len(s.got("out")) != 2 {
			t.Errorf("handed over %v, want message %d and never %d", got, moved.Seq, later.Seq)
		}
	})
}

// A publisher that notes the seqs of what it is handed.
type seen struct {
	Publisher
	seqs *sync.Map
}

func (p seen) Hand(due []DueMessage) {
	for _, d := range due {
		p.seqs.Store(d.Seq, true)
	}
	p.Publisher.Hand(due)
}

// Whatever is parked, paused, full, read again or led anew: what was answered to be cancelled, or to
// have given way to another, is never handed over, and all else is.
func TestScheduler_neverHandsOverWhatWasCancelled(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 4
	}
	var answers [raftfsm.NotFound + 1]int
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onStage(t, func(ctx context.Context, s *stage) {
				s.openIDs(ctx)
				playCancels(ctx, s, rand.New(rand.NewPCG(uint64(seed), 0)), &answers)
			})
		})
	}
	for _, code := range []raftfsm.Code{raftfsm.Superseded, raftfsm.WasCancelled, raftfsm.TooLate} {
		if answers[code] == 0 {
			t.Errorf("nothing was answered with code %d", code)
		}
	}
}

func playCancels(ctx context.Context, s *stage, random *rand.Rand, answers *[raftfsm.NotFound + 1]int) {
	targets, gone := []string{"a", "b", "c"}, make(map[uint64]bool)
	handed := new(sync.Map) // by seq
	s.capacity = []int{FeedCapacity, 20}[random.IntN(2)]
	var lanes *crowd
	term, end := context.WithCancel(ctx)
	lead := func() {
		end()
		synctest.Wait()
		lanes = &crowd{node: s.node, lanes: make(map[string]*crowdLane)}
		s.publisher = onlyClaimed{seen{lanes, handed}, s}
		term, end = context.WithCancel(ctx)
		feed := s.begin(term)
		lanes.verdicts = s.verdicts
		s.run(term, feed)
	}
	lead()
	defer func() { end() }()
	for range 250 {
		switch random.IntN(20) {
		case 0:
			lead()
		case 1, 2:
			s.acceptAtRandom(ctx, targets, random)
		case 3, 4, 5:
			time.Sleep(time.Duration(random.IntN(int(300 * time.Millisecond))))
		case 6:
			time.Sleep(time.Duration(random.IntN(int(time.Minute))))
		case 7, 8:
			lanes.act(targets[random.IntN(len(targets))], random)
		case 9:
			s.pauseAtRandom(ctx, targets, random)
		default:
			verb := []raftfsm.Verb{raftfsm.Schedule, raftfsm.Schedule, raftfsm.Cancel, raftfsm.Change}[random.IntN(4)]
			spread := []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Minute}[random.IntN(3)]
			due := time.Now().Add(time.Duration(random.Int64N(int64(spread))) - spread/4)
			a := s.operateBy(ctx, delayTopics[random.IntN(2)], verb, fmt.Sprint(random.IntN(4)), targets[random.IntN(len(targets))], due)
			answers[a.Code]++
			switch a.Code {
			case raftfsm.WasCancelled:
				gone[a.Seq] = true
			case raftfsm.Superseded:
				gone[a.Before] = true
			}
		}
		if s.t.Failed() {
			return
		}
	}
	for _, p := range s.node.Store().Pauses() {
		s.propose(ctx, raftfsm.Resume{Kind: p.Kind, Name: p.Name})
	}
	for patience := 30; s.node.Store().Pending() > 0; patience-- {
		if patience == 0 {
			s.t.Fatalf("%d messages are never delivered", s.node.Store().Pending())
		}
		lanes.healAll()
		time.Sleep(time.Minute)
	}
	for seq := uint64(1); seq < s.node.Store().NextSeq(); seq++ {
		if _, was := handed.Load(seq); was == gone[seq] {
			s.t.Errorf("message %d was handed over: %v, and ended by an operation: %v", seq, was, gone[seq])
		}
	}
}

// What was claimed when a delay topic is paused goes out all the same, be it still in storage since its target
// has enough for now, and whoever leads. What is taken in since does not, though it be due already.
func TestPause_ofATopicDoesNotCallBackWhatWasClaimed(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprint(restarts), func(t *testing.T) {
			onPauses(t, func(ctx context.Context, s *stage) {
				s.limits = Limits{Loaded: 128, Handed: 12, HandedAll: 48, Page: 16}
				s.silence("slow", true)
				term, end := context.WithCancel(ctx)
				s.lead(term)
				ago := func(i int) time.Duration { return -time.Duration(i) * time.Millisecond }
				s.acceptBy(ctx, "a.delay", "slow", 500, ago)
				s.acceptBy(ctx, "b.delay", "slow", 100, ago)
				time.Sleep(time.Second)
				s.pause(ctx, pause.Topic, "a.delay")
				s.acceptBy(ctx, "a.delay", "slow", 20, ago)
				s.acceptBy(ctx, "a.delay", "fine", 20, ago)
				s.acceptBy(ctx, "b.delay", "slow", 20, ago)
				time.Sleep(time.Second)
				s.silence("slow", false)
				if restarts {
					end = s.restart(ctx, end)
				} else {
					s.acknowledge(ctx, s.got("slow"))
				}
				time.Sleep(time.Minute)
				if pending := s.node.Store().Pending(); pending != 40 {
					t.Errorf("%d messages pending, want those that were taken in since the pause", pending)
				}
				s.check("fine", 0)
				s.resume(ctx, pause.Topic, "a.delay")
				time.Sleep(time.Minute)
				s.check("fine", 20)
				if pending := s.node.Store().Pending(); pending != 0 {
					t.Errorf("%d messages pending after the resume", pending)
				}
				end()
			})
		})
	}
}
