package schedule

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/wheel/timer"
)

func at(due int64) storage.Ref { return storage.Ref{Due: due} }

// A target goes through all of its states, and each says how far it was read.
func TestTargets_tellHowFarATargetWasRead(t *testing.T) {
	ts := newTargets(at(10))
	a := ts.get("a")
	a.kept = 1 // or it would be forgotten when it flows
	for _, step := range []struct {
		what  string
		do    func()
		state state
		reach storage.Ref
		held  bool // the main mark of the claim need not cover it
	}{
		{"loading goes on", func() { ts.loaded(at(100)) }, flowing, at(100), false},
		{"the publisher has enough", func() { ts.stop(a, at(50)) }, full, at(50), false},
		{"something earlier is accepted", func() { ts.lower(a, at(40)) }, full, at(40), false},
		{"something later is accepted", func() { ts.lower(a, at(60)) }, full, at(40), false},
		{"it has room", func() { ts.queue(a) }, queued, at(40), false},
		{"a sweep begins", func() { ts.beginSweep(a); ts.join(a) }, catchingUp, at(40), false},
		{"the sweep goes on", func() { ts.sweepTo(at(70)) }, catchingUp, at(70), false},
		{"the sweep comes to the frontier", func() { ts.sweepTo(at(100)); ts.flow(a) }, flowing, at(100), false},
		{"the window is emptied", func() { ts.retreat(at(90)) }, flowing, at(90), false},
		{"it is stuck", func() { ts.park(a, at(80), 0) }, parked, at(80), false},
		{"a claim is on its way", func() { ts.sent(a) }, parked, at(80), false},
		{"the claim holds it", func() { ts.committed(sentHold{a, true, 0}) }, parked, at(80), true},
		{"something earlier is accepted", func() { ts.lower(a, at(30)) }, parked, at(30), true},
		{"it works again, but the claim holds it", func() { ts.heal(a) }, healed, at(30), false},
		{"a claim is on its way", func() { ts.sent(a) }, healed, at(30), false},
		{"no claim holds it", func() { ts.committed(sentHold{a, false, 0}) }, queued, at(30), false},
	} {
		step.do()
		if a.state != step.state || ts.reach(a) != step.reach {
			t.Fatalf("%s: in state %d, read to %v, want %d and %v", step.what, a.state, ts.reach(a), step.state, step.reach)
		}
		if covered := !ts.reach(a).Less(ts.lowest().Min(ts.frontier)); covered == step.held {
			t.Errorf("%s: read to %v, the main mark would be %v", step.what, ts.reach(a), ts.lowest())
		}
		if ts.broken != nil {
			t.Fatalf("%s: %v", step.what, ts.broken)
		}
	}
}

// A held target that is released asks for steps, and gets what they cover. A claim's mark leaves out what
// was delivered, and nothing else.
func TestTargets_releaseStepByStep(t *testing.T) {
	ts := newTargets(at(1000))
	ts.stepwise = true
	b := ts.inherit(storage.Hold{Target: "b", Through: 20, Mark: at(10)})
	ts.heal(b)
	if b.state != queued || b.release() == nil || b.release().through != 20 || len(ts.changed.targets) > 0 || len(ts.uncovered.targets) > 0 {
		t.Fatalf("healed: %+v, %+v", b, b.release())
	}
	ts.beginSweep(b)
	ts.join(b)
	for _, due := range []int64{30, 50, 40, 25} {
		b.release().wait(at(due))
	}
	ts.compareHold(b)
	ts.sweepTo(at(60))
	if !ts.changed.has(b) {
		t.Error("no step is asked for")
	}
	ts.sent(b)
	ts.committed(sentHold{b, true, 20})
	ts.strayAll(at(5)) // by which a topic is held no more
	if hold := ts.hold(b, at(5)); !ts.changed.has(b) || hold.Mark != at(5) {
		t.Errorf("the claim has %+v, which does not cover what a topic's hold did", hold)
	}
	sent := ts.sent(b)
	if hold := ts.hold(b, at(25)); sent != (sentHold{b, true, 50}) || hold != (storage.Hold{Target: "b", Through: 50, Mark: at(25)}) {
		t.Errorf("the claim has %+v, sent as %+v", hold, sent)
	}
	b.release().wait(at(70))
	ts.sweepTo(at(80))
	ts.stop(b, at(80))
	if released := ts.committed(sent); !slices.Equal(released, []storage.Ref{at(25), at(30), at(40), at(50)}) || b.through != 50 || !ts.changed.has(b) {
		t.Errorf("released: %v of %+v", released, b)
	}
	ts.lower(b, at(15)) // accepted late
	ts.sent(b)
	if hold := ts.hold(b, at(70)); hold != (storage.Hold{Target: "b", Through: 70, Mark: at(15)}) {
		t.Errorf("the claim has %+v", hold)
	}

	// Read to the frontier it is held no more, and what waits is released.
	ts.committed(sentHold{b, true, 70})
	ts.queue(b)
	b.release().wait(at(90))
	b.kept = 1
	ts.beginSweep(b)
	ts.join(b)
	ts.sweepTo(ts.frontier)
	ts.flow(b)
	sent = ts.sent(b)
	released := ts.committed(sent)
	if sent.held || !slices.Equal(released, []storage.Ref{at(90)}) || b.held || b.release() != nil || ts.changed.has(b) {
		t.Errorf("lifted by %+v: released %v of %+v", sent, released, b)
	}
	if ts.broken != nil {
		t.Error(ts.broken)
	}
}

func TestTargets_noticeABrokenRule(t *testing.T) {
	for what, breakIt := range map[string]func(ts *targets, a *target){
		"loading goes back":                    func(ts *targets, _ *target) { ts.loaded(at(99)) },
		"the sweep goes back":                  func(ts *targets, _ *target) { ts.sweepTo(at(49)) },
		"a sweep begins during another":        func(ts *targets, a *target) { ts.stop(a, at(50)); ts.join(a); ts.beginSweep(a) },
		"what was not read counts as read":     func(ts *targets, a *target) { ts.stop(a, at(101)) },
		"reading is left to a sweep ahead":     func(ts *targets, a *target) { ts.stop(a, at(20)); ts.join(a) },
		"reading is left to the frontier":      func(ts *targets, a *target) { ts.stop(a, at(20)); ts.flow(a) },
		"a message is let go of and not read":  func(ts *targets, a *target) { ts.cover(a, at(99)) },
		"what a claim holds is fed":            func(ts *targets, _ *target) { ts.queue(ts.inherit(storage.Hold{Target: "b"})) },
		"what a claim on its way holds is fed": func(ts *targets, a *target) { ts.park(a, at(50), 0); ts.sent(a); ts.queue(a) },
	} {
		ts := newTargets(at(100))
		ts.swept = at(50)
		a := ts.get("a")
		a.kept = 1
		if breakIt(&ts, a); ts.broken == nil {
			t.Errorf("%s: nobody noticed", what)
		}
	}
}

// What is wrong in memory must not reach the log: the marks of a claim cannot be taken back.
func TestScheduler_endsTheTermRatherThanClaimByABrokenRule(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		log := &countingLog{Log: s.node}
		s.log = log
		feed := s.begin(ctx)
		defer feed.Close()
		broken := errors.New("a rule is broken")
		s.scheduler.targets.broken = broken
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true}) // wants a claim
		if err := s.scheduler.Run(ctx); !errors.Is(err, broken) || log.claims.Load() != 0 {
			t.Errorf("ended by %v, with %d claims, want %v and none", err, log.claims.Load(), broken)
		}
	})
}

// A heldLog lets no claim go on before it is told to.
type heldLog struct {
	Log
	asked, release chan struct{}
}

func (l heldLog) Propose(ctx context.Context, c raftfsm.Command) *raftfsm.Proposal {
	close(l.asked)
	<-l.release
	return l.Log.Propose(ctx, c)
}

// Behind a claim of the next term, one of this term would let a mark pass what was accepted in between.
func TestScheduler_endsWhenItsLastClaimIsWithTheLog(t *testing.T) {
	onStage(t, func(ctx context.Context, s *stage) {
		log := heldLog{s.node, make(chan struct{}), make(chan struct{})}
		s.log = log
		feed := s.begin(ctx)
		defer feed.Close()
		s.verdicts.Put(Verdict{Target: "stuck", Parked: true}) // wants a claim
		term, end := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- s.scheduler.Run(term) }()
		<-log.asked
		end()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("ended by %v with a claim on its way", err)
			close(log.release)
		default:
			close(log.release)
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended by %v", err)
			}
		}
	})
}

// Names are free text: a hundred thousand may be parked, and each is one of these.
func TestTarget_isSmall(t *testing.T) {
	if size := reflect.TypeFor[target]().Size(); size > 112 {
		t.Errorf("a target takes %d bytes, want 112 at most", size)
	}
}

// What a burst of names took is let go of when it is over.
func TestList_shrinks(t *testing.T) {
	ts := newTargets(at(0))
	var all []*target
	for i := range 10_000 {
		all = append(all, ts.get(nameOf(i)))
	}
	for _, t := range all[10:] {
		ts.forget(t)
	}
	if c := cap(ts.in[flowing].targets); c > 1024 {
		t.Errorf("a list of %d has room for %d", len(ts.in[flowing].targets), c)
	}
	for _, target := range all[:10] {
		if !ts.in[flowing].has(target) || ts.in[flowing].targets[target.place[placeState]-1] != target {
			t.Errorf("%s is not where it says", target.name)
		}
	}
}

// So is what a window took of messages that are gone: a map never gives memory back by itself.
func TestWindow_shrinks(t *testing.T) {
	w := newWindow(timer.QueueConfig{Now: time.Now}, DefaultLimits())
	const many, few = 100_000, 100
	for seq := range uint64(many) {
		w.hand(storage.Ref{Due: 1, Seq: seq}, keptMessage{})
	}
	copies := 0
	for seq := range uint64(many - few) {
		before := w.most
		w.drop(seq)
		if w.most != before {
			copies++
		}
	}
	if len(w.kept) != few || w.most > 8*mostSmall || copies > 2 {
		t.Errorf("%d messages are kept in a map that had %d, after %d copies", len(w.kept), w.most, copies)
	}
}
