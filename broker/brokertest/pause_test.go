package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	pausedTopic  = client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Who: "ann", Why: "stock taking"}
	pausedTarget = client.Pause{Kind: client.PauseTarget, Name: "orders", Who: "ann", Why: "the shop is full"}
)

func (x *idTest) pauseAll(p client.Pause) {
	x.t.Helper()
	if change, err := x.leader().broker.Pause(x.t.Context(), p); err != nil || !change.Changed {
		x.t.Fatalf("pause %s: %+v, %v", p.Name, change, err)
	}
}

func (x *idTest) resume(p client.Pause) {
	x.t.Helper()
	if change, err := x.leader().broker.Resume(x.t.Context(), p); err != nil || !change.Changed {
		x.t.Fatalf("resume %s: %+v, %v", p.Name, change, err)
	}
}

// inOrder holds that the topic has got these values, in this order.
func (x *idTest) inOrder(want ...string) {
	x.t.Helper()
	var got []string
	for _, d := range x.consume() {
		if d.Topic == "orders" {
			got = append(got, d.Value)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Errorf("orders has got %q, want %q", got, want)
	}
}

// A delay topic, or a target, is paused and leaders are killed meanwhile. Records are still taken in, and
// what they cancel will not come. Nothing is delivered before the resume; all is after it, once, in order.
func TestPause_outlivesLeadersAndLetsCancelsIn(t *testing.T) {
	for _, p := range []client.Pause{pausedTopic, pausedTarget} {
		t.Run(p.Kind, func(t *testing.T) {
			testIDs(t, storage.LevelThree, func(x *idTest) {
				var want []string
				for i := range 40 {
					value := fmt.Sprintf("%02d", i)
					x.send(options(client.After(time.Duration(20+i)*time.Second), client.ID("id"+value)), value)
					if i%4 != 1 {
						want = append(want, value)
					}
				}
				x.pauseAll(p)
				x.pause(40 * time.Second)
				for i := 1; i < 40; i += 4 {
					if i == 21 {
						x.leader().kill()
						x.pause(5 * time.Second)
						x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
					}
					x.send(options(client.Cancel(fmt.Sprintf("id%02d", i)))) // the first are due by now
				}
				x.pause(10 * time.Minute) // longer than anything waits that a term keeps
				x.send(options(client.After(time.Millisecond)), "new")
				x.pause(time.Minute)
				x.inOrder()
				if pending := x.leader().raft().Store().Pending(); pending != uint64(len(want)+1) {
					t.Errorf("%d messages pending, want %d", pending, len(want)+1)
				}
				for _, n := range x.nodes {
					if all := n.broker.Status().Paused; len(all) != 1 || all[0].Who != "ann" || all[0].Why != p.Why || all[0].Name != p.Name {
						t.Errorf("%s says that %+v are paused", n.member.ID, all)
					}
				}
				x.resume(p)
				x.leader().stop() // with the resume in the log and perhaps some of it delivered
				x.pause(5 * time.Second)
				x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
				x.pause(time.Minute)
				x.inOrder(append(want, "new")...)
				store := x.leader().raft().Store()
				if holds, topics := store.Holds(), store.TopicHolds(); store.Pending() > 0 || len(holds)+len(topics) > 0 {
					t.Errorf("%d messages pending, holds %v and %v", store.Pending(), holds, topics)
				}
			})
		})
	}
}

// A delay topic and its target are both paused, at different times, and other messages become due in
// between and after. Whichever is resumed first, what the other one still holds can be cancelled, be it
// taken in when it was due already: it is on its way only when neither holds it. A leader is killed in between.
func TestPause_ofBothLetsCancelsInUntilBothAreResumed(t *testing.T) {
	for _, order := range [][2]client.Pause{{pausedTarget, pausedTopic}, {pausedTopic, pausedTarget}} {
		for _, resumed := range [][2]client.Pause{{pausedTarget, pausedTopic}, {pausedTopic, pausedTarget}} {
			t.Run(fmt.Sprintf("%s paused first, %s resumed first", order[0].Kind, resumed[0].Kind), func(t *testing.T) {
				testIDs(t, storage.LevelThree, func(x *idTest) {
					x.must(x.createTopic("others.delay", arguments{}))
					x.must(x.createTopic("others", arguments{}))
					other := func() { // so the claim goes on
						user, _ := x.user()
						defer user.Close()
						r := &kgo.Record{Topic: "others.delay", Value: []byte("other")}
						x.must(client.Stamp(r, client.After(time.Second)))
						x.must(user.ProduceSync(x.t.Context(), r).FirstErr())
						x.pause(5 * time.Second)
					}
					x.pauseAll(order[0])
					x.send(options(client.After(time.Second), client.ID("between")), "between")
					x.send(options(client.After(time.Second), client.ID("kept")), "kept")
					other()
					x.pauseAll(order[1])
					x.send(options(client.After(time.Millisecond), client.ID("late")), "late")
					other()
					x.send(options(client.At(time.Now().Add(-time.Minute)), client.ID("overdue")), "overdue")
					x.leader().kill()
					x.pause(5 * time.Second)
					x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
					x.resume(resumed[0])
					x.pause(time.Minute)
					other()
					for _, id := range []string{"between", "late", "overdue"} {
						x.send(options(client.Cancel(id)))
						x.pause(time.Second) // followers apply, too
						x.expectLife(id, "cancelled")
					}
					x.inOrder()
					x.resume(resumed[1])
					x.pause(time.Minute)
					x.inOrder("kept")
				})
			})
		}
	}
}

// The dead letter of a record that is refused at intake came by its delay topic: a pause of that holds it,
// too, and one of the dead-letter topic does so alone.
func TestPause_ofADelayTopicHoldsItsDeadLetters(t *testing.T) {
	letters := client.Pause{Kind: client.PauseTarget, Name: "carillon.dead-letter", Who: "ann", Why: "too many to read"}
	for _, p := range []client.Pause{pausedTopic, letters} {
		t.Run(p.Kind, func(t *testing.T) {
			testIDs(t, storage.LevelThree, func(x *idTest) {
				refused := func(value string) {
					user, _ := x.user()
					defer user.Close()
					r := &kgo.Record{Topic: "orders.delay", Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "deliver-after", Value: []byte("soon")}}}
					x.must(user.ProduceSync(x.t.Context(), r).FirstErr())
					x.pause(10 * time.Second)
				}
				refused("before")
				x.expectDelivered("carillon.dead-letter", "before")
				x.pauseAll(p)
				refused("while paused")
				x.expectDelivered("carillon.dead-letter", "before")
				x.resume(p)
				x.pause(10 * time.Second)
				x.expectDelivered("carillon.dead-letter", "before", "while paused")
			})
		})
	}
}

// A target is missing since a time at which the delay topic was paused already, and the topic is resumed first.
// What fell due in between can be cancelled until the target is there, and comes in order then. Leaders are
// killed while nothing of it, some of it and all of it has been let go.
func TestPause_ofATopicResumedBeforeItsTargetIsMendedLetsCancelsIn(t *testing.T) {
	for _, killed := range []string{"before the resume", "after the resume", "while the topic comes back", "while the target comes back"} {
		t.Run(killed, func(t *testing.T) {
			testIDs(t, storage.LevelThree, func(x *idTest) {
				kill := func(when string, pause time.Duration) {
					if when == killed {
						x.pause(pause)
						x.leader().kill()
						x.pause(5 * time.Second)
						x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
						x.pause(time.Minute)
					}
				}
				x.must(x.createTopic("others.delay", arguments{}))
				x.pauseAll(pausedTopic)
				var want []string
				for i := range 40 {
					value := fmt.Sprintf("%02d", i)
					x.send(options(client.To("shop"), client.After(time.Duration(1+i)*time.Second), client.ID("id"+value)), value)
					if i%4 != 1 {
						want = append(want, value)
					}
				}
				user, _ := x.user()
				defer user.Close()
				r := &kgo.Record{Topic: "others.delay", Value: []byte("other")}
				x.must(client.Stamp(r, client.To("shop"), client.After(2*time.Minute)))
				x.must(user.ProduceSync(x.t.Context(), r).FirstErr())
				x.pause(3 * time.Minute) // the target is found missing now
				kill("before the resume", 0)
				x.resume(pausedTopic)
				kill("while the topic comes back", 0)
				x.pause(time.Minute)
				kill("after the resume", 0)
				for i := 1; i < 40; i += 4 {
					id := fmt.Sprintf("id%02d", i)
					x.send(options(client.Cancel(id)))
					x.pause(time.Second) // followers apply, too
					x.expectLife(id, "cancelled")
				}
				x.must(x.createTopic("shop", arguments{}))
				kill("while the target comes back", 10*time.Millisecond)
				x.pause(5 * time.Minute)
				var got []string
				for _, d := range x.consume() {
					if d.Topic == "shop" {
						got = append(got, d.Value)
					}
				}
				if want := append(want, "other"); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("the target has got %q, want %q", got, want)
				}
				store := x.leader().raft().Store()
				if store.Pending() > 0 || len(store.Holds()) > 0 || store.PauseBounds().Len() > 0 {
					t.Errorf("%d messages pending, holds %v, %d bounds", store.Pending(), store.Holds(), store.PauseBounds().Len())
				}
			})
		})
	}
}

// A node that applies the log waits for what an event brings, and whoever pauses waits for the log.
func TestScript_bringsWhatAnEventIsToBringWhileItPauses(t *testing.T) {
	s, err := parseScript(strings.NewReader("cluster nodes=1\non taken nth=1 after=9s disk here well\n" + begin + `
at 10s disk n1 slow=2s
at 10s produce orders.delay deliver-after=1h
at 11s pause target orders
`))
	if err != nil {
		t.Fatal(err)
	}
	s.playAndLook(t, NewReport(), func(p *player) {
		if took := time.Since(p.start); took > 15*time.Second || len(p.leader().broker.Status().Paused) != 1 {
			t.Errorf("%d are paused after %v, want 1, as soon as the disk is well", len(p.leader().broker.Status().Paused), took)
		}
	})
}

// The last of three that is left may be told to lead, and cannot acknowledge what it sends.
func TestScript_excusesCopiesOfWhoIsLeftAlone(t *testing.T) {
	s, err := parseScript(strings.NewReader("cluster nodes=3\n" + begin + "\nat 10s produce orders.delay deliver-after=1h\nat 10s kill follower\nat 12s stop follower\n"))
	if err != nil {
		t.Fatal(err)
	}
	s.playAndLook(t, NewReport(), func(p *player) {
		faults := p.observer.ledger.Faults
		if !slices.ContainsFunc(faults, func(f ledger.Fault) bool { return f.Kind == "stop-alone" }) {
			t.Errorf("want that the second stop left no majority, got %+v", faults)
		}
	})
}
