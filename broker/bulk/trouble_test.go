package bulk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// A lateLog takes starts in after their callers have gone.
type lateLog struct {
	aloneLog
	leave func() // has the caller go
}

func (l lateLog) Propose(ctx context.Context, c raftfsm.Command) *raftfsm.Proposal {
	if _, ok := c.(raftfsm.StartBulk); !ok {
		return l.aloneLog.Propose(ctx, c)
	}
	late, answer := raftfsm.NewProposal(make(chan struct{}))
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(5*time.Second, func() { answer(l.aloneLog.Propose(ctx, c).Wait(ctx)) })
	l.leave()
	return late
}

func TestRun_carriesOutAStartThatWasInDoubt(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 50)
		ctx, leave := context.WithCancel(t.Context())
		f.Log = lateLog{aloneLog{f.node}, leave}
		defer f.lead()()
		_, err := f.Start(ctx, client.OperationRequest{Verb: client.OperationCancel, All: true, Reason: "r"}, "ann", "")
		if !errors.Is(err, client.ErrInDoubt) {
			t.Errorf("the start: %v", err)
		}
		f.pass(10 * time.Second)
		if o, err := f.Get(t.Context(), "1"); err != nil || o.State != client.OperationFinished || o.Done != 50 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// A lostLog is that of a leader that no follower answers.
type lostLog struct{ aloneLog }

func (lostLog) Barrier(context.Context) error {
	return fmt.Errorf("barrier: %w: %w", raftfsm.ErrInDoubt, context.DeadlineExceeded)
}

func TestDesk_isInNoDoubtWhereNothingWasSent(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 50)
		f.start(client.OperationRequest{Verb: client.OperationCancel, All: true, Reason: "r"})
		lost := lostLog{aloneLog{f.node}}
		f.Log, f.Queries = lost, query.New(f.node.Store(), lost)
		start := func(filter client.Filter, dry bool) error {
			_, err := f.Start(t.Context(), client.OperationRequest{Verb: client.OperationCancel, Filter: filter, Reason: "r", DryRun: dry}, "ann", "")
			return err
		}
		_, listed := f.List(t.Context())
		_, got := f.Get(t.Context(), "1")
		for what, err := range map[string]error{
			"list": listed, "get": got,
			"a dry run":                     start(client.Filter{Topic: "a.delay"}, true),
			"a start":                       start(client.Filter{Topic: "a.delay"}, false),
			"a start that looks at each id": start(client.Filter{Prefix: "a.delay/0/1"}, false),
		} {
			if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was done") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all := f.Local(); len(all.Operations) != 1 {
			t.Errorf("%+v", all)
		}
	})
}

// A fullLog is that of a node whose disk is nearly full.
type fullLog struct{ aloneLog }

func (fullLog) Room() error { return fmt.Errorf("%w: 3 MiB free", raftfsm.ErrNoRoom) }

func TestCancel_goesOnWithoutRoomAndAChangeWaits(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 50)
		f.put("b.delay", "orders", "b", 50)
		f.Log = fullLog{aloneLog{f.node}}
		defer f.lead()()
		changed := f.start(client.OperationRequest{Verb: client.OperationNow, Filter: client.Filter{Topic: "a.delay"}, Reason: "r"})
		cancelled := f.start(client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "b.delay"}, Reason: "r"})
		f.pass(time.Minute)
		if o, err := f.Get(t.Context(), changed.ID); err != nil || o.State != client.OperationRunning || o.Done != 0 {
			t.Errorf("the change: %+v, %v", o, err)
		}
		o, err := f.Get(t.Context(), cancelled.ID)
		if err != nil {
			t.Fatal(err)
		}
		f.expect(o, 50, 0, 0, 0)
	})
}
