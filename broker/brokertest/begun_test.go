package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
)

// A clock that is wrong by a year is not believed by whatever users may ask a leader to write: messages are due when they
// were asked for, pauses and operations began when they did, and the state's time is right. (Else a message
// would come at once that was asked for in an hour, where the clock is behind.)
func TestWrites_believeNoClockThatFiringDoesNot(t *testing.T) {
	for name, by := range map[string]time.Duration{"ahead": year, "behind": -year} {
		t.Run(name, func(t *testing.T) {
			withAWrongClock(t, by, func(x *idTest, stop <-chan struct{}) {
				w := writes{idTest: x}
				var asking sync.WaitGroup
				for _, ask := range []func(context.Context, *node){w.schedule, w.pauseAndResume, w.operate} {
					asking.Go(func() { w.askUntil(stop, ask) })
				}
				asking.Wait()
				w.checkMessages()
			})
		})
	}
}

// Writes are what users ask of leaders.
type writes struct {
	*idTest
	scheduled []time.Time // when those were asked for that were answered
}

// askUntil asks all nodes, one time after the other.
func (w *writes) askUntil(stop <-chan struct{}, ask func(context.Context, *node)) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		for _, n := range w.nodes {
			if n.running() {
				ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
				ask(ctx, n)
				cancel()
			}
		}
	}
}

func (w *writes) schedule(ctx context.Context, n *node) {
	asked := time.Now()
	r := client.ScheduleRequest{Topic: "orders.delay", ID: fmt.Sprint("w", len(w.scheduled)), DeliverAfter: "1h"}
	if n.broker.Orders().Schedule(ctx, nil, []client.ScheduleRequest{r})[0].Problem == nil {
		w.scheduled = append(w.scheduled, asked)
	}
}

func (w *writes) pauseAndResume(ctx context.Context, n *node) {
	asked := time.Now()
	change, err := n.broker.Pause(ctx, pausedTopic)
	if err != nil {
		return
	}
	for _, p := range n.raft().Store().Pauses() {
		if change.Changed { // or it is of a round before, whose resume was lost
			w.expectNow("pause", p.Since, asked)
		}
	}
	_, _ = n.broker.Resume(ctx, pausedTopic) // if it is lost another round does it
}

func (w *writes) operate(ctx context.Context, n *node) {
	asked := time.Now()
	r := client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "orders.delay", Prefix: "none"}, Reason: "a test"}
	o, err := n.broker.Operations().Start(ctx, r, "ann", "")
	if err != nil {
		return
	}
	w.expectNow("operation", o.Started, asked)
	_, _ = n.broker.Operations().Stop(ctx, o.ID, "ann", "") // it may have ended
}

// expectNow holds that something began since it was asked for, by clocks that differ a little.
func (w *writes) expectNow(what string, at int64, asked time.Time) {
	if since := time.UnixMilli(at); since.Before(asked.Add(-time.Second)) || since.After(time.Now().Add(time.Second)) {
		w.t.Errorf("%s of %v began at %v", what, asked, since)
	}
}

// checkMessages holds that those that were asked for in an hour are due then.
func (w *writes) checkMessages() {
	if len(w.scheduled) < 20 {
		w.t.Errorf("%d answers prove too little", len(w.scheduled))
	}
	for i, asked := range w.scheduled {
		found, ok, err := w.leader().raft().Store().Lookup("orders.delay", fmt.Sprint("w", i))
		w.must(err)
		if due := time.UnixMilli(found.Due).Add(-time.Hour); !ok || due.Sub(asked).Abs() > 3*time.Second {
			w.t.Errorf("w%d, asked for at %v: %v, an hour before it is due it is %v", i, asked, ok, due)
		}
	}
}
