package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// What cannot be paused is refused with field, value and remedy before anything is proposed.
func TestPause_refusesWhatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		node := nodetest.Open(t, ctx)
		defer node.Close()
		b := &Broker{config: config.Default(), node: node, now: time.Now, log: slog.New(slog.DiscardHandler)}
		b.hasBegun.Store(true)
		b.config.Routes = []config.Route{config.NewRoute("*.delay"), config.NewRoute("later")}
		refused := func(p client.Pause, field, want string) {
			t.Helper()
			_, err := b.Pause(ctx, p)
			if told, _ := err.(*client.Problem); !errors.Is(err, client.ErrBadRequest) || told.Field != field || !strings.Contains(told.Detail, want) {
				t.Errorf("%+v: %#v, want %s", p, err, want)
			}
		}
		if _, err := b.Pause(ctx, client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Why: "why"}); !errors.Is(err, client.ErrUnsupported) || !strings.Contains(err.Error(), "the feature level is 1, a pause takes 3: run `carillon cluster raise`") {
			t.Errorf("at level 1: %v", err)
		}
		if _, err := node.Propose(ctx, raftfsm.RaiseLevel{Level: storage.LevelThree}).Wait(ctx); err != nil {
			t.Fatal(err)
		}
		refused(client.Pause{Kind: client.PauseTopic, Name: "orders", Why: "why"}, "topic", `topic "orders" is of no route, so no message comes by it: name one that routes[].from matches, which are "*.delay", "later"; or`)
		refused(client.Pause{Kind: client.PauseTarget, Name: "later", Why: "why"}, "target", `target "later" is a delay topic by routes[].from "later", and no message goes there: pause it as a topic`)
		refused(client.Pause{Kind: "partition", Name: "later", Why: "why"}, "kind", `kind "partition" is neither topic nor target: write one`)
		refused(client.Pause{Kind: client.PauseTarget, Name: "__x", Why: "why"}, "target", `target "__x" is not among the targets by targets.allow and targets.deny, and no message waits for it`)
		refused(client.Pause{Kind: client.PauseTarget, Name: "a/b", Why: "why"}, "target", `topic name "a/b" holds '/'`)
		refused(client.Pause{Kind: client.PauseTarget, Why: "why"}, "target", "topic name is empty")
		refused(client.Pause{Kind: client.PauseTopic, Name: "later", Why: " "}, "why", "is empty: say it")
		refused(client.Pause{Kind: client.PauseTopic, Name: "later", Why: strings.Repeat("x", 1001)}, "why", "has 1001 bytes: write 1000 at most")
		refused(client.Pause{Kind: client.PauseTopic, Name: "later", Who: "\xff", Why: "why"}, "who", "of UTF-8 text")
		if pauses := node.Store().Pauses(); len(pauses) > 0 {
			t.Errorf("paused nevertheless: %v", pauses)
		}

		first := client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Who: "ann", Why: "why", Since: time.Now().UnixMilli()}
		for _, who := range []string{"ann", "bob"} { // whose words are not kept, and who is told so
			got, err := b.Pause(ctx, client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Who: who, Why: map[string]string{"ann": "why", "bob": "another"}[who]})
			if err != nil || got.Changed != (who == "ann") || !got.Changed && (got.Was == nil || *got.Was != first) || got.Changed && got.Was != nil {
				t.Errorf("paused by %s: %+v, error %v", who, got, err)
			}
		}
		all := pausesOf(node.Store())
		if want := (client.Pause{Kind: "topic", Name: "orders.delay", Who: "ann", Why: "why", Since: time.Now().UnixMilli()}); len(all) != 1 || all[0] != want {
			t.Errorf("paused are %+v, want %+v", all, want)
		}
		waits := raftfsm.Operate{Time: time.Now().UnixMilli(), Operations: []raftfsm.Operation{{Verb: raftfsm.Schedule, Entry: storage.Entry{Due: time.Now().Add(time.Hour).UnixMilli(), Target: "__x", Topic: "orders.delay", ID: "a"}}}}
		if _, err := node.Propose(ctx, waits).Wait(ctx); err != nil {
			t.Fatal(err)
		}
		denied := client.Pause{Kind: client.PauseTarget, Name: "__x", Why: "why"} // from before the configuration said so
		if got, err := b.Pause(ctx, denied); err != nil || !got.Changed {
			t.Errorf("a denied target for which a message waits: %+v, error %v", got, err)
		}
		if got, err := b.Resume(ctx, denied); err != nil || !got.Changed {
			t.Errorf("resumed: %+v, error %v", got, err)
		}
		b.config.Routes = nil // what no route has any more can be resumed
		for _, want := range []bool{true, false} {
			got, err := b.Resume(ctx, client.Pause{Kind: client.PauseTopic, Name: "orders.delay"})
			if err != nil || got.Changed != want {
				t.Errorf("resumed: %+v, error %v, want %v", got, err, want)
			}
		}
	})
}

func TestCollector_namesWhatIsPaused(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(func() Status {
		return Status{Paused: []client.Pause{{Kind: client.PauseTopic, Name: "a.delay"}, {Kind: client.PauseTarget, Name: "a"}}}
	}))
	text := exposition(t, registry)
	for _, want := range []string{`carillon_paused{kind="topic",name="a.delay"} 1`, `carillon_paused{kind="target",name="a"} 1`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// How far pairs of held topics and targets had come is kept, so there is an end to pauses where many
// targets are parked. What is held already can be paused, and what is paused can be so twice.
func TestPause_isRefusedWhereTooManyPairsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		node := nodetest.Open(t, ctx)
		defer node.Close()
		propose := func(c raftfsm.Command) {
			t.Helper()
			if _, err := node.Propose(ctx, c).Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		b := &Broker{config: config.Default(), node: node, now: time.Now, log: slog.New(slog.DiscardHandler)}
		b.hasBegun.Store(true)
		b.config.Routes = []config.Route{config.NewRoute("*.delay")}
		propose(raftfsm.RaiseLevel{Level: storage.LevelThree})
		var parked storage.ClaimChange
		const targets = mostHeld / 10
		for i := range targets {
			parked.Set = append(parked.Set, storage.Hold{Target: fmt.Sprint("parked", i)})
		}
		propose(raftfsm.ChangeClaim{ClaimChange: parked})
		pause := func(kind, name, refused string) {
			t.Helper()
			_, err := b.Pause(ctx, client.Pause{Kind: kind, Name: name, Why: "why"})
			if refused == "" && err != nil || refused != "" && (!errors.Is(err, client.ErrRefused) || !strings.Contains(err.Error(), refused)) {
				t.Errorf("%s %s: %v, want %q", kind, name, err, refused)
			}
		}
		for i := range 10 {
			pause(client.PauseTopic, fmt.Sprint(i, ".delay"), "")
		}
		pause(client.PauseTopic, "more.delay", `topic "more.delay": with it 11 delay topics and 100000 targets would be held`)
		pause(client.PauseTarget, "orders", `target "orders": with it 10 delay topics and 100001 targets would be held, since they are paused or targets cannot be written to, and each pair is kept, 1000000 at most: resume some`)
		pause(client.PauseTarget, "parked7", "")
		pause(client.PauseTopic, "0.delay", "")
	})
}
