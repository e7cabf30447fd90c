package schedule

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/wheel/timer"
)

// PageSize is how many messages one read of storage loads: a few milliseconds, so
// that what is due meanwhile is not late by more.
const PageSize = 2048

// FeedCapacity is how many accepted messages may wait for the scheduler; what
// overflows is read from storage.
const FeedCapacity = 1 << 16

// A Scheduler decides when each message goes to the publisher. It runs in one
// goroutine of a term and owns the window, the targets and the claims; it learns
// of what is accepted, claimed and acknowledged from the feed, in log order.
//
//	feed, storage --> window (wheel) --> due, claimed --> publisher
//	                     ^                                    |
//	                     `---- verdicts: parked, healed <-----'
type Scheduler struct {
	cfg     Options
	limits  Limits
	log     *slog.Logger
	window  *window
	targets targets
	topics  topics
	claims  claims
	search  search

	claiming sync.WaitGroup // a call that proposes a claim

	waited struct{ due, at time.Time } // when it waited last: by the clock that messages are due by, and by the monotonic one

	nextFull    int // of the full targets, the next to look at
	nextChanged int // of the targets whose holds change, the next to be in a claim
	lastSweep   sweepTime
	gathering   time.Time       // when the first of those came back that the next sweep is to read for; zero: nobody did
	events      []raftfsm.Event // reused
	items       []storage.Item  // reused
	due         []DueMessage    // reused
}

// Options are the parts that a scheduler is made of.
type Options struct {
	Store     Store
	Feed      *raftfsm.Feed
	Log       Log
	Publisher Publisher
	Verdicts  *mailbox.Mailbox[Verdict]
	Searched  *atomic.Bool // storage has been searched for strays since the process began
	// Now is the time by which messages are due. While the clock is in doubt it stands
	// still: then nothing becomes due, and no claim goes further.
	Now    func() time.Time
	Alarm  *Alarm // may be nil
	Report *report.Report
	Limits Limits // zero: DefaultLimits
	Logger *slog.Logger
}

// A Log puts commands into the replicated log; *node.Node implements it.
type Log interface {
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
}

// A Store is the part of *storage.Store that the scheduler reads.
type Store interface {
	State() storage.State
	Holds() []storage.Hold
	TopicHolds() []storage.TopicHold
	Paused(kind pause.Kind, name string) bool
	PauseBounds() pause.Bounds
	Level() storage.Level
	Scan(from, to storage.Ref, max int, keep storage.Filter, out []storage.Item) (items []storage.Item, next storage.Ref, done bool, err error)
}

// New starts where the committed claim says. The feed must have been
// attached before the barrier after which the state is read here.
func New(cfg Options) *Scheduler {
	state, holds := cfg.Store.State(), cfg.Store.Holds()
	limits := cmp.Or(cfg.Limits, DefaultLimits())
	s := &Scheduler{
		cfg:     cfg,
		limits:  limits,
		log:     cfg.Logger.With("component", "scheduler"),
		window:  newWindow(timer.QueueConfig{Start: state.Claim.Mark.Due, Now: cfg.Now}, limits),
		targets: newTargets(state.Claim.Mark),
		topics:  newTopics(),
		claims:  newClaims(state.Claim, state.AppliedIndex),
	}
	for _, hold := range holds {
		t := s.targets.inherit(hold)
		if t.paused = cfg.Store.Paused(pause.Target, t.name); !t.paused {
			t.ill = true // it may be: the publisher finds out
			cfg.Report.SetParked(t.index, t.name)
			cfg.Publisher.Confirm(t.name)
		}
	}
	for _, hold := range cfg.Store.TopicHolds() {
		s.inheritTopic(raftfsm.Held{Kind: pause.Topic, Name: hold.Topic, Paused: cfg.Store.Paused(pause.Topic, hold.Topic),
			Held: true, Through: hold.Through, Mark: hold.Mark})
	}
	s.topics.bounds = cfg.Store.PauseBounds()
	if !cfg.Searched.Load() {
		s.search = newSearch(state, holds)
	}
	return s
}

// Run schedules until ctx ends or something must end the term. When it returns no claim of it is on its way to the
// log any more: the next term, on the same node, might else have claimed by then, and a mark of this one would pass what
// was accepted meanwhile.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.claiming.Wait()
	defer cancel() // it waits for no room in the log then
	wake := time.NewTimer(0)
	defer wake.Stop()
	for ctx.Err() == nil {
		more, err := s.pass(ctx)
		if err == nil && !more {
			err = s.wait(ctx, wake)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// pass does once what there is to do, and reports whether there is more at once.
func (s *Scheduler) pass(ctx context.Context) (more bool, err error) {
	if err := s.claims.hear(); err != nil {
		return false, err
	}
	if err := s.takeEvents(); err != nil {
		return false, err
	}
	s.targets.stepwise = s.cfg.Store.Level() >= storage.LevelThree
	s.takeHolds()
	s.takeVerdicts()
	loaded, err := s.load()
	if err != nil {
		return false, err
	}
	limit := s.limit()
	more = s.fire(limit)
	if !more {
		more, err = s.readOn(limit)
	}
	more = more || loaded
	if err == nil && !more && !s.search.isOver() {
		more, err = true, s.searchOn()
	}
	if err == nil {
		err = s.targets.broken
	}
	if err != nil {
		return false, err
	}
	s.claim(ctx)
	return more, nil
}

// readOn reads a page for those that catch up, and one for a topic that comes back. It reports whether
// it did either.
func (s *Scheduler) readOn(limit int64) (read bool, err error) {
	swept, err := s.sweep(limit)
	if err != nil {
		return false, err
	}
	brought, err := s.bringBack(limit)
	return swept || brought, err
}

// wait sleeps until there may be something to do.
func (s *Scheduler) wait(ctx context.Context, wake *time.Timer) error {
	patience := s.patience()
	due, alarm := s.dueChannel(), s.cfg.Alarm.C()
	if s.standsStill() {
		patience, due, alarm = stillPatience, nil, nil
	} else {
		s.setAlarm()
	}
	wake.Reset(patience)
	select {
	case <-ctx.Done():
	case <-s.cfg.Feed.Ready():
	case <-s.cfg.Verdicts.Ready():
	case err := <-s.claims.failed:
		return err
	case index := <-s.claims.applied:
		s.claims.settle(index)
	case <-due:
	case <-alarm:
	case <-wake.C:
	}
	return nil
}

// patience returns how long to sleep if nothing wakes the scheduler before.
//
// The wheel reads the clock after limit has, and may yield what was due only in between;
// or the clock is set back after both. If a claim covers it, nothing else wakes us: the
// wheel has it no more, and no claim is to come.
func (s *Scheduler) patience() time.Duration {
	wait := s.claims.wait(s.now(), s.nextDue())
	if ripe := s.window.ripe; len(ripe) > 0 && int64(ripe[0].When) <= s.claims.committed.Through {
		wait = min(wait, time.UnixMilli(int64(ripe[0].When)).Sub(s.cfg.Now()))
	}
	if len(s.targets.in[queued].targets) > 0 {
		wait = min(wait, s.untilSweep())
	}
	return wait
}

// now is the clock rounded down: a message is never handed over early.
func (s *Scheduler) now() int64 { return s.cfg.Now().UnixMilli() }

// limit is the last due time that may be handed over.
func (s *Scheduler) limit() int64 { return min(s.now(), s.claims.committed.Through) }

// dueChannel fires when the wheel has something due; while that waits for a claim,
// the feed wakes us instead.
func (s *Scheduler) dueChannel() <-chan time.Time {
	if len(s.window.ripe) > 0 {
		return nil
	}
	return s.window.queue.C()
}

// setAlarm lets the kernel's alarm ring when the wheel has something due.
func (s *Scheduler) setAlarm() {
	if due, ok := s.window.queue.Next(); ok && len(s.window.ripe) == 0 {
		s.cfg.Alarm.set(time.UnixMilli(due).Sub(s.cfg.Now()))
	}
}

// takeEvents follows the log: what was accepted with a ref below its target's reach enters the
// window, or lowers the mark if the target has one of its own; what was killed leaves it.
func (s *Scheduler) takeEvents() error {
	events, lost, didLose := s.cfg.Feed.Take(s.events[:0])
	limit := s.limit()
	for _, event := range events {
		for _, item := range event.Accepted {
			if err := s.accept(item, limit); err != nil {
				return err
			}
		}
		for _, run := range event.Killed {
			s.forget(run)
		}
		if event.Claim != nil {
			s.claims.committed = *event.Claim
		}
		if event.Index > s.claims.seen { // else the term has begun with what it tells
			if event.Bounds != nil {
				s.topics.bounds = *event.Bounds
			}
			s.takeHeld(event.Held)
		}
		s.claims.seen = max(s.claims.seen, event.Index)
	}
	clear(events)
	s.events = events
	if didLose {
		s.retreat(lost)
		s.targets.lowerAll(lost, len(s.topics.held) > 0)
		s.topics.lowerAll(lost)
	}
	if s.window.len() > s.limits.Loaded {
		s.retreat(s.targets.frontier)
	}
	return nil
}

// accept takes in what the feed shows, if its ref is below the target's reach: what lies
// beyond is in storage and will be read. For a target that flows the reach is the frontier.
// A parked target has a mark, which the claim of an earlier term may have left above the
// frontier. What is accepted between the two must lower the mark, since reading on from the
// frontier passes over a parked target. One that is not known (nil) flows.
//
// One that is due already, for a target that is full, is left for the sweep at once.
func (s *Scheduler) accept(item storage.Item, limit int64) error {
	s.topics.lower(item.Topic, item.Ref)
	t := s.targets.byName[item.Target]
	switch {
	case s.topics.withholds(item.Topic, item.Target, item.Ref):
		return nil
	case t.hasOwnMark() && (item.Ref.Less(t.end()) || item.Due <= limit):
		s.targets.lower(t, item.Ref)
		s.targets.leave(t, item.Ref)
		return nil
	case !s.targets.isToBeKept(t, item.Ref):
		return nil
	}
	if _, kept := s.window.kept[item.Seq]; kept {
		return nil
	}
	return s.add(s.targets.get(item.Target), item)
}

// fire hands over what is due by limit, a page at most, and reports
// whether there is more to hand over now.
func (s *Scheduler) fire(limit int64) (more bool) {
	ripe, more := s.window.ripen()
	if len(ripe) > s.limits.Page { // of one millisecond
		ripe, more = ripe[:s.limits.Page], true
	}
	due, n := s.due[:0], 0
	for ; n < len(ripe) && int64(ripe[n].When) <= limit; n++ {
		ref := storage.Ref{Due: int64(ripe[n].When), Seq: ripe[n].Value.seq}
		m, kept := s.window.kept[ref.Seq]
		if !kept || m.handed {
			continue // killed meanwhile, or handed over while catching up
		}
		t := s.targets.byIndex[m.target]
		switch {
		case s.topics.withholds(s.topics.names[m.topic], t.name, ref):
			s.drop(ref.Seq)
			s.targets.forget(t)
		case t.hasOwnMark() || !ref.Less(s.targets.reach(t)):
			s.leaveInStorage(t, ref)
		case int(t.handed) >= s.allowance(t, s.left()):
			s.drop(ref.Seq)
			s.targets.stop(t, ref)
		default:
			due = s.hand(due, t, ref, m.topic)
		}
	}
	unclaimed := n < len(ripe)
	s.window.take(n)
	s.publish(due)
	s.due = due
	return more && !unclaimed
}

// leaveInStorage lets go of a message that is to be read again: its target does not
// flow, or the sweep that reads for it has not come to the message.
func (s *Scheduler) leaveInStorage(t *target, ref storage.Ref) {
	s.drop(ref.Seq)
	s.targets.cover(t, ref)
}

// hand notes that the publisher gets the message, and appends it to what is due, unless a claim must
// release it first.
func (s *Scheduler) hand(due []DueMessage, t *target, ref storage.Ref, topic uint32) []DueMessage {
	s.targets.expect(!s.topics.withholds(s.topics.names[topic], t.name, ref), "what is withheld is handed over at", t, ref)
	if s.window.hand(ref, keptMessage{target: t.index, topic: topic}) {
		t.kept++
	}
	t.handed++
	f := t.fed()
	if len(f.out) > 2*int(t.handed) {
		s.stillOut(t)
	}
	f.out = append(f.out, ref)
	if s.mustWait(t, ref, topic) {
		f.release.wait(ref)
		s.targets.compareHold(t)
		return due
	}
	return append(due, DueMessage{Ref: ref, Target: t.name})
}

// mustWait reports whether a claim must let go of a message of a target that is released, or of one before it.
func (s *Scheduler) mustWait(t *target, ref storage.Ref, topic uint32) bool {
	r := t.release()
	return r != nil && (ref.Due > r.through || r.isBehind(ref) || s.topics.bounds.Covers(s.topics.names[topic], t.name).Stops(ref.Due, ref.Seq))
}

// handReleased appends to what is due what has waited for a claim, unless it is gone, its topic was
// paused meanwhile, or the claim has not let it go.
func (s *Scheduler) handReleased(due []DueMessage, t *target, released []storage.Ref) []DueMessage {
	for _, ref := range released {
		switch m := s.window.kept[ref.Seq]; {
		case !m.handed:
		case s.topics.withholds(s.topics.names[m.topic], t.name, ref):
			s.drop(ref.Seq) // all of the topic is read again from its hold on
		case s.mustWait(t, ref, m.topic): // it came while that claim was on its way, or its topic was paused then
			t.feeding.release.wait(ref)
			s.targets.compareHold(t)
		default:
			due = append(due, DueMessage{Ref: ref, Target: t.name})
		}
	}
	s.targets.forget(t)
	return due
}

func (s *Scheduler) publish(due []DueMessage) {
	if len(due) > 0 {
		s.claims.lastFired = s.now()
		s.cfg.Publisher.Hand(due)
	}
}

// forget drops what was killed. A run may be long, the window is bounded.
func (s *Scheduler) forget(run storage.SeqRun) {
	if run.Last-run.First < uint64(len(s.window.kept)) {
		for seq := run.First; ; seq++ {
			s.forgetOne(seq)
			if seq == run.Last {
				return
			}
		}
	}
	for seq := range s.window.kept {
		if seq >= run.First && seq <= run.Last {
			s.forgetOne(seq)
		}
	}
}

func (s *Scheduler) forgetOne(seq uint64) {
	t, handed := s.drop(seq)
	if t == nil {
		return
	}
	if handed {
		t.fed().pace.end()
	}
	s.queueIfRoom(t)
	s.targets.forget(t)
}

// add puts a message that waits into the window.
func (s *Scheduler) add(t *target, item storage.Item) error {
	if err := s.window.add(item.Ref, keptMessage{target: t.index, topic: s.topics.index(item.Topic, s.window)}); err != nil {
		return err
	}
	t.kept++
	return nil
}

// drop takes a message out of the window and returns its target, nil when it was not
// there, and whether the publisher had it.
func (s *Scheduler) drop(seq uint64) (t *target, handed bool) {
	m, kept := s.window.drop(seq)
	if !kept {
		return nil, false
	}
	t = s.targets.byIndex[m.target]
	t.kept--
	if m.handed {
		t.handed--
	}
	return t, m.handed
}

// retreat empties the window and moves the frontier back to its first message, or
// to ref if that is earlier, and the sweep with it. What is due first is then loaded
// again, and the rest waits in storage. It is the one remedy for a window that is too
// full and for a feed that has lost something.
//
// Whoever catches up and was read up to there flows from now on, before anything is loaded.
// Loading passes over those that catch up: the frontier would go on without them, to the end
// perhaps, and a target of which more waits than the window holds would be read up to the
// frontier, and overflow it, again and again.
func (s *Scheduler) retreat(ref storage.Ref) {
	s.window.empty(func(dropped storage.Ref, m keptMessage) {
		t := s.targets.byIndex[m.target]
		t.kept--
		switch {
		case s.topics.withholds(s.topics.names[m.topic], t.name, dropped):
			s.targets.forget(t)
		case t.hasOwnMark() && dropped.Less(t.end()):
			s.targets.lower(t, dropped)
		default: // reading ahead comes to it again
			ref = ref.Min(dropped)
			s.targets.forget(t)
		}
	})
	s.targets.retreat(ref)
	s.endSweep()
}
