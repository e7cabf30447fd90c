package broker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// The clock of a node was set a year ahead before it started, and it leads. Until it has compared clocks nothing
// that users ask for takes the time of the state there, from where it never comes back: what expires within that year would be
// dropped, and what became of all else forgotten.
func TestUsersLog_takesNothingInBeforeClocksWereCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		node := nodetest.Open(t, ctx)
		defer node.Close()
		if _, err := node.Propose(ctx, raftfsm.RaiseLevel{Level: storage.LevelThree}).Wait(ctx); err != nil {
			t.Fatal(err)
		}
		b := &Broker{config: config.Default(), node: node, now: func() time.Time { return time.Now().AddDate(1, 0, 0) }, log: slog.New(slog.DiscardHandler)}
		asked := map[string]func() error{
			"a pause": func() error {
				_, err := b.Pause(ctx, client.Pause{Kind: client.PauseTarget, Name: "orders", Why: "why"})
				return err
			},
			"a resume": func() error {
				_, err := b.Resume(ctx, client.Pause{Kind: client.PauseTarget, Name: "orders"})
				return err
			},
			"a raise": func() error { return b.commitLevel(ctx, b.users(), storage.LevelFour) },
			"an order": func() error {
				_, err := b.users().Propose(ctx, raftfsm.Operate{Time: b.now().UnixMilli()}).Wait(ctx)
				return err
			},
		}
		for what, ask := range asked {
			if err := ask(); !errors.Is(err, raftfsm.ErrBusy) {
				t.Errorf("%s is answered %v, want that nothing was done", what, err)
			}
		}
		if at := node.Store().Time(); at != 0 {
			t.Errorf("the state's time is %v", time.UnixMilli(at))
		}
		b.now = time.Now
		b.hasBegun.Store(true)
		for what, ask := range asked {
			if err := ask(); err != nil {
				t.Errorf("%s, after clocks were compared: %v", what, err)
			}
		}
	})
}
