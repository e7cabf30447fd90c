package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// crowd is a publisher whose lanes park, heal and acknowledge when the test says so,
// by the rules of package broker's lanes: what is handed to a parked one comes back,
// and it heals only when the scheduler has confirmed each verdict.
type crowd struct {
	node interface {
		Propose(context.Context, raftfsm.Command) *raftfsm.Proposal
	}
	verdicts *mailbox.Mailbox[Verdict]

	mu    sync.Mutex
	lanes map[string]*crowdLane
}

type crowdLane struct {
	parked     bool
	unanswered int
	lazy       bool // does not acknowledge by itself
	holding    []storage.Ref
}

func (c *crowd) lane(target string) *crowdLane {
	l, ok := c.lanes[target]
	if !ok {
		l = new(crowdLane)
		c.lanes[target] = l
	}
	return l
}

func (c *crowd) Hand(due []DueMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range due {
		l := c.lane(d.Target)
		l.holding = append(l.holding, d.Ref)
		switch {
		case l.parked:
			c.giveBack(d.Target, l)
		case !l.lazy:
			c.ack(l, len(l.holding))
		}
	}
}

func (c *crowd) Confirm(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lane(target)
	if l.unanswered > 0 {
		l.unanswered--
	} else {
		l.parked = true // of an earlier term
	}
}

func (c *crowd) giveBack(target string, l *crowdLane) {
	l.unanswered++
	c.verdicts.Put(Verdict{Target: target, Parked: true, Returned: l.holding})
	l.holding = nil
}

// ack ends the first n messages that the lane holds.
func (c *crowd) ack(l *crowdLane, n int) {
	var runs []storage.SeqRun
	for _, ref := range l.holding[:n] {
		runs = append(runs, storage.SeqRun{First: ref.Seq, Last: ref.Seq})
	}
	l.holding = l.holding[n:]
	if len(runs) > 0 {
		c.node.Propose(context.Background(), raftfsm.Ack{Runs: runs})
	}
}

// act does something to a lane.
func (c *crowd) act(target string, random *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lane(target)
	switch what := random.IntN(5); {
	case l.parked && what < 3:
		c.heal(target, l)
	case what == 0 && !l.parked:
		l.parked = true
		c.giveBack(target, l)
	case what < 3:
		l.lazy = !l.lazy
	default:
		c.ack(l, random.IntN(len(l.holding)+1))
	}
}

func (c *crowd) heal(target string, l *crowdLane) {
	if l.parked && l.unanswered == 0 {
		l.parked = false
		c.verdicts.Put(Verdict{Target: target})
	}
}

// healAll makes every lane work, and reports whether all do.
func (c *crowd) healAll() (all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = true
	for target, l := range c.lanes {
		l.lazy = false
		c.heal(target, l)
		c.ack(l, len(l.holding))
		all = all && !l.parked
	}
	return all
}

// Whatever order targets park and heal in, messages come in, early and late, and terms
// follow each other: after every pass each message is kept or will be read, and in
// the end all were delivered.
func TestScheduler_losesNothingInAnyOrderOfEvents(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onStage(t, func(ctx context.Context, s *stage) { playAtRandom(ctx, s, rand.New(rand.NewPCG(uint64(seed), 0))) })
		})
	}
}

func playAtRandom(ctx context.Context, s *stage, random *rand.Rand) {
	targets := make([]string, 2+random.IntN(12))
	for i := range targets {
		targets[i] = fmt.Sprint("target", i)
	}
	s.capacity = []int{FeedCapacity, 20}[random.IntN(2)]
	if random.IntN(2) == 0 {
		s.limits = Limits{Loaded: 128, Handed: 12, HandedAll: 48, Page: 16}
	}
	levels := []storage.Level{storage.LevelTwo, storage.LevelThree}
	level := levels[random.IntN(len(levels))] // that it comes to
	pauses := random.IntN(2) == 0
	if pauses {
		s.raise(ctx, storage.LevelThree)
	}
	var lanes *crowd
	term, end := context.WithCancel(ctx)
	lead := func() {
		end()
		synctest.Wait()
		lanes = &crowd{node: s.node, lanes: make(map[string]*crowdLane)}
		s.publisher = lanes
		term, end = context.WithCancel(ctx)
		s.log = s.node
		if claims := random.IntN(12); pauses && claims > 0 { // it ends after so many, if not before
			s.log = &cutLog{Log: s.node, end: end, last: func(raftfsm.Command) bool {
				claims--
				return claims == 0
			}}
		}
		feed := s.begin(term)
		lanes.verdicts = s.verdicts
		if random.IntN(2) == 0 { // something comes before it runs
			s.acceptAtRandom(ctx, targets, random)
		}
		s.run(term, feed)
	}
	lead()
	defer func() { end() }()
	for range 100 {
		switch random.IntN(12) {
		case 0:
			lead()
			if random.IntN(4) == 0 { // it may come at any moment of a term
				s.raise(ctx, level)
			}
		case 1, 2, 3, 4:
			s.acceptAtRandom(ctx, targets, random)
		case 5:
			time.Sleep(time.Duration(random.IntN(int(2 * time.Minute))))
		case 6, 7:
			time.Sleep(time.Duration(random.IntN(int(300 * time.Millisecond))))
		default:
			lanes.act(targets[random.IntN(len(targets))], random)
		}
		if pauses && random.IntN(4) == 0 {
			s.pauseAtRandom(ctx, targets, random)
		}
		if s.t.Failed() {
			return
		}
	}
	pauses = false
	lead()
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
}

var delayTopics = []string{"a.delay", "b.delay", "c.delay"}

// pauseAtRandom pauses or resumes something, at times what is so already.
func (s *stage) pauseAtRandom(ctx context.Context, targets []string, random *rand.Rand) {
	kind, name := pause.Topic, delayTopics[random.IntN(len(delayTopics))]
	if random.IntN(2) == 0 {
		kind, name = pause.Target, targets[random.IntN(len(targets))]
	}
	if random.IntN(2) == 0 {
		s.propose(ctx, raftfsm.Pause{Kind: kind, Name: name})
	} else {
		s.propose(ctx, raftfsm.Resume{Kind: kind, Name: name})
	}
}

// acceptAtRandom schedules some messages around now, for one target or several.
func (s *stage) acceptAtRandom(ctx context.Context, targets []string, random *rand.Rand) {
	spread := []time.Duration{time.Millisecond, time.Second, 10 * time.Minute}[random.IntN(3)]
	shift := time.Duration(random.Int64N(int64(2*spread))) - spread
	for range 1 + random.IntN(3) {
		topic := delayTopics[random.IntN(len(delayTopics))]
		s.acceptBy(ctx, topic, targets[random.IntN(len(targets))], 1+random.IntN(20), func(int) time.Duration {
			return shift + time.Duration(random.Int64N(int64(spread)))
		})
	}
}
