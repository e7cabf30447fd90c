package schedule

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// onlyClaimed is a publisher that is to get nothing but what the log has claimed. What is handed
// over for what is paused was claimed before that.
type onlyClaimed struct {
	Publisher
	stage *stage
}

func (p onlyClaimed) Hand(due []DueMessage) {
	store := p.stage.node.Store()
	if _, measures := p.stage.t.(*testing.B); store.Level() >= storage.LevelThree && !measures {
		var refs []storage.Ref
		for _, d := range due {
			refs = append(refs, d.Ref)
		}
		slices.SortFunc(refs, storage.Ref.Compare)
		entries, err := store.Read(refs, nil)
		if err != nil {
			p.stage.t.Error(err)
		}
		for _, e := range entries {
			if !store.Claimed(e.Ref(), e.Topic, e.Target) {
				p.stage.t.Errorf("message %v, which came by %s for %s, is handed over and not claimed (through %d)", e.Ref(), e.Topic, e.Target, store.Through(e.Topic, e.Target))
			}
		}
	}
	p.Publisher.Hand(due)
}

// A cutLog takes commands until one after which nothing more comes through: the term ends there.
type cutLog struct {
	Log
	last func(raftfsm.Command) bool
	end  func() // of the term

	mu  sync.Mutex
	cut bool
}

func (l *cutLog) Propose(ctx context.Context, c raftfsm.Command) *raftfsm.Proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		l.end()
		return raftfsm.Refused(raftfsm.ErrNotLeader)
	}
	l.cut = l.last(c)
	return l.Log.Propose(ctx, c)
}

// onPauses plays with a cluster that can be paused.
func onPauses(t *testing.T, play func(ctx context.Context, s *stage)) {
	onStage(t, func(ctx context.Context, s *stage) {
		s.raise(ctx, storage.LevelThree)
		play(ctx, s)
	})
}

func (s *stage) pause(ctx context.Context, kind pause.Kind, name string) {
	s.t.Helper()
	s.propose(ctx, raftfsm.Pause{Time: time.Now().UnixMilli(), Kind: kind, Name: name, Who: "ann"})
}

func (s *stage) resume(ctx context.Context, kind pause.Kind, name string) {
	s.t.Helper()
	if !s.propose(ctx, raftfsm.Resume{Time: time.Now().UnixMilli(), Kind: kind, Name: name}).Changed {
		s.t.Errorf("%s %s was not paused", kind, name)
	}
}

// restart ends the term that end ends, and begins another. What the publisher had and did not
// acknowledge is handed over anew.
func (s *stage) restart(ctx context.Context, end func()) (again func()) {
	end()
	synctest.Wait()
	term, end := context.WithCancel(ctx)
	s.lead(term)
	return end
}

// A slowLog takes a while for each claim, and counts them.
type slowLog struct {
	Log
	takes  time.Duration
	claims atomic.Int64
}

func (l *slowLog) Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal {
	if _, isClaim := command.(raftfsm.ChangeClaim); isClaim {
		l.claims.Add(1)
		time.Sleep(l.takes) // of the bubble
	}
	return l.Log.Propose(ctx, command)
}

// A claim that takes long raises a hold to what was now when it was made. That must not be why another one is made.
func TestPause_endsThoughClaimsTakeLong(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		log := &slowLog{Log: s.node, takes: 3 * time.Second}
		s.log = log
		s.lead(ctx)
		s.pause(ctx, pause.Topic, "a.delay")
		s.acceptBy(ctx, "a.delay", "held", 500, every(100*time.Millisecond))
		time.Sleep(time.Minute)
		before := log.claims.Load()
		s.resume(ctx, pause.Topic, "a.delay")
		time.Sleep(time.Hour)
		s.check("held", 500)
		if held, claims := s.node.Store().TopicHolds(), log.claims.Load()-before; len(held) > 0 || claims > 10 {
			t.Errorf("%d claims since the topic was resumed, holds %v", claims, held)
		}
	})
}

func every(step time.Duration) func(int) time.Duration {
	return func(i int) time.Duration { return time.Duration(i+1) * step }
}

// A pause holds what it names and nothing else, over any number of terms, and takes new messages in. A
// resume delivers all of it, in order.
func TestPause_holdsWhatItNamesUntilItIsResumed(t *testing.T) {
	for _, kind := range []pause.Kind{pause.Topic, pause.Target} {
		for _, terms := range []int{0, 2} {
			t.Run(fmt.Sprint(kind, " ", terms), func(t *testing.T) {
				onPauses(t, func(ctx context.Context, s *stage) {
					name := map[pause.Kind]string{pause.Topic: "a.delay", pause.Target: "held"}[kind]
					s.pause(ctx, kind, name) // before there is anything of that name
					term, end := context.WithCancel(ctx)
					s.lead(term)
					s.acceptBy(ctx, "a.delay", "held", 500, every(10*time.Millisecond))
					s.acceptBy(ctx, "b.delay", "fine", 500, every(10*time.Millisecond))
					time.Sleep(3 * time.Second)
					for range terms {
						end = s.restart(ctx, end)
					}
					time.Sleep(time.Hour)
					s.check("held", 0)
					s.check("fine", 500)
					s.acceptBy(ctx, "a.delay", "held", 100, func(i int) time.Duration { return time.Duration(i-50) * time.Minute })
					s.propose(ctx, raftfsm.Ack{Runs: []storage.SeqRun{{First: 1, Last: 7}}}) // cancelled
					time.Sleep(time.Second)
					s.check("held", 0)
					s.resume(ctx, kind, name)
					s.acceptBy(ctx, "b.delay", "fine", 100, every(10*time.Millisecond))
					time.Sleep(2 * time.Hour)
					s.check("held", 593)
					s.check("fine", 600)
					if len(s.confirmed) > 0 {
						t.Errorf("the publisher is to watch %v, which are paused only", s.confirmed)
					}
					end()
					if holds, topics := s.node.Store().Holds(), s.node.Store().TopicHolds(); len(holds)+len(topics) > 0 {
						t.Errorf("still held: %v, %v", holds, topics)
					}
				})
			})
		}
	}
}

// What is due at the moment of the pause and what is with the publisher is not taken back; what is due
// later is held, though it is in memory already.
func TestPause_leavesWhatWasClaimed(t *testing.T) {
	for _, kind := range []pause.Kind{pause.Topic, pause.Target} {
		t.Run(kind.String(), func(t *testing.T) {
			onPauses(t, func(ctx context.Context, s *stage) {
				s.silence("held", true)
				s.lead(ctx)
				s.acceptBy(ctx, "held", "held", 2000, every(time.Millisecond)) // a topic and a target may have one name
				time.Sleep(time.Second)
				s.pause(ctx, kind, "held")
				through := s.node.Store().Through("held", "held")
				time.Sleep(time.Minute)
				handed := s.got("held")
				if len(handed) < 900 || len(handed) > 1200 || handed[len(handed)-1].Due > through {
					t.Fatalf("%d messages handed over, the last %v, claimed through %d", len(handed), handed[len(handed)-1], through)
				}
				s.silence("held", false)
				s.Hand(nil)
				s.propose(ctx, raftfsm.Ack{Runs: []storage.SeqRun{{First: 1, Last: uint64(len(handed))}}})
				s.resume(ctx, kind, "held")
				time.Sleep(time.Minute)
				s.check("held", 2000)
			})
		})
	}
}

// Both a topic and its target are paused; each is resumed first once, in one term or in several.
func TestPause_ofBothHoldsUntilBothAreResumed(t *testing.T) {
	type of struct {
		kind pause.Kind
		name string
	}
	topic, target := of{pause.Topic, "a.delay"}, of{pause.Target, "held"}
	for i, order := range [][2]of{{topic, target}, {target, topic}} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(i, restarts), func(t *testing.T) {
				onPauses(t, func(ctx context.Context, s *stage) {
					term, end := context.WithCancel(ctx)
					s.lead(term)
					s.acceptBy(ctx, "a.delay", "held", 300, every(10*time.Millisecond))
					s.acceptBy(ctx, "a.delay", "other", 300, every(10*time.Millisecond))
					s.acceptBy(ctx, "b.delay", "held", 300, every(10*time.Millisecond))
					s.pause(ctx, order[1].kind, order[1].name)
					s.pause(ctx, order[0].kind, order[0].name)
					time.Sleep(time.Minute)
					step := func() {
						time.Sleep(time.Minute)
						if restarts {
							end = s.restart(ctx, end)
							time.Sleep(time.Minute)
						}
					}
					step()
					s.resume(ctx, order[0].kind, order[0].name)
					step()
					// What was due within moments of the topic's pause was claimed before it, and waits for the target alone.
					if got := len(s.got("held")); order[0] == topic && got != 0 || order[0] == target && (got < 300 || got > 300+ClaimLead/10) {
						t.Errorf("%d messages for the target after %s was resumed", got, order[0].name)
					}
					s.resume(ctx, order[1].kind, order[1].name)
					step()
					s.check("other", 300)
					if got := len(s.got("held")); got != 600 {
						t.Errorf("%d messages for the target, want 600", got)
					}
					end()
				})
			})
		}
	}
}

// A paused target that Kafka does not take is fed again when it is neither.
func TestPause_ofAParkedTargetOutlastsThatItHeals(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.silence("held", true)
		s.lead(ctx)
		s.accept(ctx, "held", 10, every(time.Millisecond))
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "held", Parked: true, Returned: s.got("held")})
		time.Sleep(time.Second)
		s.mu.Lock()
		clear(s.handed)
		s.silent["held"] = false
		s.mu.Unlock()
		s.pause(ctx, pause.Target, "held")
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "held"})
		time.Sleep(time.Minute)
		s.check("held", 0)
		s.resume(ctx, pause.Target, "held")
		time.Sleep(time.Second)
		s.check("held", 10)

		s.pause(ctx, pause.Target, "held")
		s.accept(ctx, "held", 10, every(time.Millisecond))
		s.verdicts.Put(Verdict{Target: "held", Parked: true})
		time.Sleep(time.Second)
		s.resume(ctx, pause.Target, "held")
		time.Sleep(time.Minute)
		s.check("held", 10)
		s.verdicts.Put(Verdict{Target: "held"})
		time.Sleep(time.Second)
		s.check("held", 20)
	})
}

// A resume moves reading back by as long as the pause was. What is due meanwhile is on time.
func TestPause_thatEndsDelaysNobodyElse(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.unchecked = true
		s.lead(ctx)
		s.pause(ctx, pause.Topic, "a.delay")
		s.acceptBy(ctx, "a.delay", "held", 30_000, every(time.Millisecond))
		time.Sleep(time.Hour)
		s.accept(ctx, "fine", 200, every(20*time.Millisecond))
		time.Sleep(time.Second)
		s.resume(ctx, pause.Topic, "a.delay")
		time.Sleep(time.Minute)
		s.checkOnTime("fine", 200)
		s.check("held", 30_000)
	})
}

// A target is parked when all was read, but for what is withheld: its own mark is beyond that, as is the
// claim's. Both must cover it when the topic's hold is gone, by the same claim: a term may end there.
func TestPause_thatEndsLeavesWhatIsLaterToAParkedTarget(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		term, end := context.WithCancel(ctx)
		s.lead(term)
		s.pause(ctx, pause.Topic, "a.delay")
		s.acceptBy(ctx, "a.delay", "stuck", 1, every(2*time.Hour))
		s.acceptBy(ctx, "a.delay", "later", 1, every(2*time.Hour))
		s.accept(ctx, "fine", 10, every(10*time.Millisecond)) // claims are committed meanwhile
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true})
		time.Sleep(time.Second)
		end()
		synctest.Wait()
		term, end = context.WithCancel(ctx)
		s.log = &cutLog{Log: s.node, end: end, last: func(c raftfsm.Command) bool {
			claim, isClaim := c.(raftfsm.ChangeClaim)
			return isClaim && len(claim.LiftTopics) > 0
		}}
		s.lead(term)
		time.Sleep(time.Second)
		s.resume(ctx, pause.Topic, "a.delay")
		time.Sleep(time.Second)
		if len(s.node.Store().TopicHolds()) > 0 {
			t.Error("the topic is held still")
		}
		s.log = s.node
		end = s.restart(ctx, end)
		time.Sleep(3 * time.Hour)
		s.check("stuck", 0)
		s.check("later", 1)
		s.verdicts.Put(Verdict{Target: "stuck"})
		time.Sleep(time.Second)
		s.check("stuck", 1)
		end()
	})
}

// Many targets are paused, and resumed in one moment by commands of their own: the backlog is read for them together.
func TestPause_ofManyTargetsReadsABacklogForAllThatAreResumed(t *testing.T) {
	const n, each = 2000, 3
	onPauses(t, func(ctx context.Context, s *stage) {
		s.unchecked = true
		store := &countingStore{Store: s.node.Store()}
		s.store = store
		s.lead(ctx)
		for i := range n {
			s.pause(ctx, pause.Target, nameOf(i))
		}
		s.acceptForMany(ctx, n, each, after(time.Second))
		time.Sleep(time.Minute)
		if got := s.count(); got != 0 {
			t.Fatalf("%d messages handed over", got)
		}
		before := store.looks.Load()
		for i := range n {
			s.node.Propose(ctx, raftfsm.Resume{Kind: pause.Target, Name: nameOf(i)})
		}
		time.Sleep(time.Minute)
		if got := s.count(); got != n*each {
			t.Errorf("%d messages handed over, want %d", got, n*each)
		}
		// What is in memory is looked at twice. One sweep for each would look at two thousand times as many.
		if looks := store.looks.Load() - before; looks > 10*n*each {
			t.Errorf("looked at %d entries for a backlog of %d and %d targets", looks, n*each, n)
		}
	})
}

// A loss lowers the mark of a parked target in memory. The hold's, which has passed what is withheld, must
// not be taken for as low when that comes back: a new term would begin behind it.
func TestPause_lossDoesNotStandForTheMarkOfAHold(t *testing.T) {
	onPauses(t, func(ctx context.Context, s *stage) {
		s.capacity = 10
		s.pause(ctx, pause.Topic, "b.delay")
		ago := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return -d } }
		s.acceptBy(ctx, "b.delay", "slow", 1, ago(10*time.Minute))
		first, end := context.WithCancel(ctx)
		s.lead(first)
		s.acceptBy(ctx, "a.delay", "fine", 5, func(i int) time.Duration { return time.Duration(i) * 200 * time.Millisecond })
		time.Sleep(5 * time.Second) // claims are committed meanwhile
		s.verdicts.Put(Verdict{Target: "slow", Parked: true})
		time.Sleep(time.Second)
		s.acceptBy(ctx, "a.delay", "fine", 20, ago(20*time.Minute)) // more than the feed takes
		time.Sleep(time.Second)
		s.resume(ctx, pause.Topic, "b.delay")
		time.Sleep(10 * time.Second)
		if holds := s.node.Store().TopicHolds(); len(holds) > 0 {
			t.Fatalf("topics are held: %v", holds)
		}
		end()
		synctest.Wait()
		s.lead(ctx)
		time.Sleep(time.Second)
		s.verdicts.Put(Verdict{Target: "slow"})
		time.Sleep(10 * time.Second)
		s.check("slow", 1)
		if got := len(s.got("fine")); got != 25 {
			t.Errorf("%d messages handed over for fine, want 25", got)
		}
	})
}
