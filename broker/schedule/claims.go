package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// ClaimLead is how far ahead of its due time a message is claimed, in milliseconds:
// many times a commit, so that a claim is there when it is needed, and little
// enough that little is claimed and not delivered when a leader is lost.
const ClaimLead = 100

// mostChanges is how many holds one claim changes: some hundred kilobytes. The others
// follow with the next claims; until then the main mark covers them.
const mostChanges = 4096

// mostPairs is how many times a claim has Apply look at a delay topic that is held, or of which something is
// kept back, for a target that the claim names: up to a microsecond each (storage,
// BenchmarkClaimWhilePaused).
const mostPairs = 1024

// claims keeps the log ahead of the clock: nothing is published that a committed
// claim does not cover. So the log says how far anything may have been sent, and with the
// marks from where a new leader must read.
//
// One proposal at a time. The next one is computed only when the feed has shown
// everything up to the last one; Apply itself keeps a claim's marks below whatever
// was accepted since the last claim (storage.Claim.Fresh). Together that makes
// the marks safe: a message accepted before the last claim has been seen here, one
// accepted later lowers the mark at Apply.
type claims struct {
	committed storage.Claim
	seen      uint64 // log index of the last event of the feed, or of what the term began with
	proposed  bool   // a proposal's outcome is not known yet
	index     uint64 // log index of the last own claim
	applied   chan uint64
	failed    chan error
	holds     []sentHold // what the claim on its way changes
	lastFired int64
}

func newClaims(committed storage.Claim, index uint64) claims {
	return claims{committed: committed, seen: index, applied: make(chan uint64, 1), failed: make(chan error, 1)}
}

// hear takes the outcome of a proposal if it is there: while there is much to read
// the scheduler does not sleep, and claims must go on.
func (c *claims) hear() error {
	select {
	case err := <-c.failed:
		return err
	case index := <-c.applied:
		c.settle(index)
	default:
	}
	return nil
}

// isSettled reports whether no claim is on its way, and the feed has shown the last one.
func (c *claims) isSettled() bool { return !c.proposed && c.seen >= c.index }

// wants reports whether messages need a further claim, given the next due time.
// While messages are fired one after the other the claim is renewed half a lead
// ahead, since what follows the next message is not known.
func (c *claims) wants(now, next int64) bool {
	if next > now+ClaimLead {
		return false
	}
	return c.committed.Through < next || c.isBusy(now) && c.committed.Through < now+ClaimLead/2
}

// isBusy reports whether something was fired a moment ago.
func (c *claims) isBusy(now int64) bool {
	since := now - c.lastFired
	return since >= 0 && since < ClaimLead
}

// wait returns how long the scheduler may sleep before the next claim is wanted: a
// second at most, since the clock may be set meanwhile.
func (c *claims) wait(now, next int64) time.Duration {
	switch {
	case c.proposed, next <= c.committed.Through && !c.isBusy(now):
		return time.Second
	case c.isBusy(now):
		return ClaimLead / 4 * time.Millisecond
	}
	return time.Duration(min(max(next-ClaimLead-now, 1), 1000)) * time.Millisecond
}

// settle notes that the own claim is in the log.
func (c *claims) settle(index uint64) {
	c.proposed = false
	c.index = index
}

// takeHolds notes what the last claim has made of holds, once it is committed.
func (s *Scheduler) takeHolds() {
	c := &s.claims
	if !c.isSettled() {
		return
	}
	var due []DueMessage
	for _, hold := range c.holds {
		due = s.handReleased(due, hold.target, s.targets.committed(hold))
	}
	s.publish(due)
	clear(c.holds)
	c.holds = c.holds[:0]
}

// claim proposes what the scheduler needs next: more time, or other holds.
func (s *Scheduler) claim(ctx context.Context) {
	c := &s.claims
	s.takeHolds()
	if !c.isSettled() {
		return
	}
	now := s.now()
	through, released := s.topics.ahead()
	if released != endOfSchedule {
		s.targets.strayAll(released)
	}
	low := s.window.lowest(s.targets.frontier).Min(s.targets.lowest())
	next := storage.Claim{Through: max(c.committed.Through, through), Mark: low.Min(released)}
	if c.wants(now, s.nextDue()) {
		next.Through = max(next.Through, now+ClaimLead)
	}
	if next.Through == c.committed.Through && len(s.targets.changed.targets) == 0 && !s.topics.wantClaim() && !s.searchNeedsClaim() {
		return
	}
	command := s.claimCommand(now, next)
	c.proposed = true
	s.claiming.Add(1)
	go func() {
		proposal := s.cfg.Log.Propose(ctx, command)
		s.claiming.Done()
		result, err := proposal.Wait(ctx)
		if err != nil {
			c.failed <- fmt.Errorf("commit claim: %w", err)
			return
		}
		c.applied <- result.Index
	}()
}

// claimCommand puts into a command what is to change of the holds. Before
// storage.LevelTwo a claim names all of them.
func (s *Scheduler) claimCommand(now int64, next storage.Claim) raftfsm.Command {
	changes := s.cfg.Store.Level() >= storage.LevelTwo
	change := storage.ClaimChange{Through: next.Through, Mark: next.Mark}
	changed := s.targets.changed.targets
	named, pairs, topics := 0, 0, 0
	if len(changed) > 0 {
		topics = s.topics.pairings()
	}
	for ; named < len(changed); named++ {
		t := changed[(s.nextChanged+named)%len(changed)]
		pairs += topics
		if changes && (named == mostChanges || named > 0 && pairs > mostPairs) {
			break
		}
		sent := s.targets.sent(t)
		s.claims.holds = append(s.claims.holds, sent)
		if sent.held {
			change.Set = append(change.Set, s.targets.hold(t, next.Mark))
		} else {
			change.Lift = append(change.Lift, t.name)
		}
	}
	if changes {
		unnamedBehind := false // a topic's hold is lifted once a new term would find by those of targets what it brought
		for i := named; i < len(changed); i++ {
			unnamedBehind = unnamedBehind || changed[(s.nextChanged+i)%len(changed)].behind
		}
		s.topics.change(&change, !unnamedBehind)
		if named < len(changed) {
			s.nextChanged += named // those that are released want a change with each claim
		}
		return raftfsm.ChangeClaim{Time: now, ClaimChange: change}
	}
	for _, t := range s.targets.in[parked].targets {
		next.Holds = append(next.Holds, s.targets.hold(t, next.Mark))
	}
	slices.SortFunc(next.Holds, func(a, b storage.Hold) int { return cmp.Compare(a.Target, b.Target) })
	return raftfsm.ClaimCommand{Time: now, Claim: next}
}

// nextDue returns the earliest due time that needs a claim, or one before it. A target
// that catches up needs none: what is found for it beyond the claim enters the window.
func (s *Scheduler) nextDue() int64 {
	next := s.targets.frontier.Due
	if due, ok := s.window.next(); ok {
		next = min(next, due)
	}
	return next
}

// stillPatience is how long the scheduler sleeps while the clock by which messages are due stands still: nobody tells it when that
// ends. What is due next would else wake it again and again, in as little as microseconds.
const stillPatience = ClaimLead / 4 * time.Millisecond

// standsStill reports whether that clock has stood still since the last wait.
func (s *Scheduler) standsStill() bool {
	due, at := s.cfg.Now(), time.Now()
	still := due.Equal(s.waited.due) && at.After(s.waited.at)
	s.waited.due, s.waited.at = due, at
	return still
}
