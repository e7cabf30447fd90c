package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// state returns that of the message that the node tells of, as it asks the log.
func (x *idTest) state(n *node, id string) string {
	x.t.Helper()
	life, err := n.broker.Queries().Get(x.t.Context(), "orders.delay", id)
	x.must(err)
	if life.Message == nil {
		return ""
	}
	return life.Message.State
}

// leadBy has another node lead.
func (x *idTest) leadBy(to *node) {
	x.t.Helper()
	_, err := x.leader().raft().TransferLeadershipTo(x.t.Context(), []string{to.member.ID})
	x.must(err)
	x.await(time.Minute, "lead of "+to.member.ID, func() bool { return to.broker.Leading() && x.leader() == to })
}

// A leader whose clock is ahead tells that a message has expired, by which nothing else was written. Then one leads whose
// clock is 400 ms behind that, so that by its own clock the message waits still. It can be neither
// cancelled nor changed there, nobody is told that it waits, and nothing is delivered, be it let go at once.
func TestExpiry_onceToldIsTrueUnderALeaderWhoseClockIsBehind(t *testing.T) {
	const ahead, behind = 200 * time.Millisecond, -200 * time.Millisecond
	waiting := map[string]func(x *idTest) (letGo func()){
		"target paused": func(x *idTest) func() {
			x.pauseAll(pausedTarget)
			return func() { x.resume(pausedTarget) }
		},
		"topic paused": func(x *idTest) func() {
			x.pauseAll(pausedTopic)
			return func() { x.resume(pausedTopic) }
		},
		"target parked": func(x *idTest) func() {
			x.must(x.deleteTopic("orders"))
			return func() { x.must(x.createTopic("orders", arguments{})) }
		},
	}
	for name, hold := range waiting {
		t.Run(name, func(t *testing.T) {
			testIDs(t, storage.LevelFour, func(x *idTest) {
				fast := x.leader()
				slow := x.nodes[slices.IndexFunc(x.nodes, func(n *node) bool { return n != fast })]
				for _, n := range x.nodes {
					n.clock.step(map[bool]time.Duration{true: ahead, false: behind}[n == fast])
				}
				x.pause(15 * time.Second) // clocks are compared
				letGo := hold(x)
				if name == "target parked" {
					x.send(options(client.After(time.Second)), "parks it")
					x.pause(time.Minute)
				}
				x.send(options(client.After(20*time.Second), client.ExpiresAfter(10*time.Second), client.ID("a")), "a")
				x.send(options(client.After(20*time.Second), client.ExpiresAfter(time.Hour), client.ID("b")), "b")
				found, _, err := fast.raft().Store().Lookup("orders.delay", "a")
				x.must(err)
				expires := time.UnixMilli(found.Expires)
				x.pause(expires.Sub(fast.clock.now()) - time.Millisecond)
				if got := x.state(fast, "a"); got == client.StateExpired {
					t.Errorf("a millisecond early it is %s", got)
				}
				x.pause(2 * time.Millisecond)
				if got := x.state(fast, "a"); got != client.StateExpired {
					t.Fatalf("it is %s", got)
				}

				x.leadBy(slow)
				letGo() // its target, or topic, flows from now on
				desk, none := slow.broker.Orders(), order.Condition{}
				tooLate := func(what string, _ client.Answer, err error) {
					t.Helper()
					p, _ := errors.AsType[*client.Problem](err)
					if p == nil || p.Code != client.CodeTooLate || p.Outcome == nil || p.Outcome.Kind != client.OutcomeExpired || p.Outcome.At != found.Expires {
						t.Errorf("%s: %+v, %v", what, p, err)
					}
				}
				a, err := desk.Cancel(x.t.Context(), "orders.delay", "a", none)
				tooLate("cancel", a, err)
				a, err = desk.Change(x.t.Context(), "orders.delay", "a", none, client.ChangeRequest{DeliverAfter: "1h"})
				tooLate("change", a, err)
				a, err = desk.Now(x.t.Context(), "orders.delay", "a", none)
				tooLate("now", a, err)
				if got := x.state(slow, "a"); got != client.StateExpired && got != "" {
					t.Errorf("the next leader tells that it is %s", got)
				}
				count, err := slow.broker.Queries().Count(x.t.Context(), client.Filter{Topic: "orders.delay", Prefix: "a", States: []string{"waiting", "parked", "paused", "claimed"}})
				if err != nil || count.Count != 0 {
					t.Errorf("%d are counted that wait, %v", count.Count, err)
				}
				if early := expires.Sub(slow.clock.now()); early <= 0 {
					t.Errorf("all of it came %v too late to prove anything", -early)
				}
				x.pause(time.Minute)
				x.expectDelivered("orders", slices.DeleteFunc([]string{"b", "parks it"}, func(v string) bool { return v != "b" && name != "target parked" })...)
				x.expectLife("a", "expired")
			})
		})
	}
}

// A year is how far a clock goes wrong.
const year = 365 * 24 * time.Hour

// withAWrongClock plays with a cluster in which one message waits, while the clock of a node is ahead by so much:
// that of the leader is set, or that of a node was wrong when its process began, and has not been compared with those of
// others when the node is elected. The play goes on until stop is closed.
func withAWrongClock(t *testing.T, by time.Duration, play func(x *idTest, stop <-chan struct{})) {
	tests := map[string]func(x *idTest){"it is set": func(x *idTest) { x.leader().clock.step(by) }}
	for i := range 3 { // one of them leads first
		tests[fmt.Sprintf("n%d begins with it", i+1)] = func(x *idTest) {
			for _, n := range x.nodes {
				n.kill()
			}
			x.nodes[i].clock.step(by)
			x.nodes[i].start()
			x.pause(10 * time.Second) // its comparisons become rare
			x.startAll()
		}
	}
	for name, goWrong := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, parseArguments([]string{"nodes=3", "sync=20ms", "flush=100"})) // a term takes a while to begin, and what a process knows at once is on disk
				defer c.stop()
				x := &idTest{player: newPlayer(c, NewReport())}
				x.must(x.createTopic("orders.delay", arguments{}))
				x.must(x.createTopic("orders", arguments{}))
				x.startAll()
				x.leader()
				x.pause(5 * time.Second)
				x.send(options(client.After(24*time.Hour), client.ExpiresAfter(time.Hour), client.ID("a")), "a")
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					play(x, stop)
				}()
				goWrong(x)
				x.pause(10 * time.Second)
				close(stop)
				<-done
				if ahead := time.Until(time.UnixMilli(x.leader().raft().Store().Time())); ahead > time.Second {
					t.Errorf("the state's time is %v ahead", ahead)
				}
			})
		})
	}
}

// A clock that is set a year ahead lets nothing expire, however much the leader is asked.
func TestExpiry_believesNoClockThatFiringDoesNot(t *testing.T) {
	withAWrongClock(t, year, func(x *idTest, stop <-chan struct{}) {
		if got := x.askUntil(stop, "a"); got < 100 {
			x.t.Errorf("%d answers prove too little", got)
		}
	})
}

func (x *idTest) startAll() {
	x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
}

// askUntil asks all nodes for a message that waits, one time after the other, and returns how often the leader has answered.
func (x *idTest) askUntil(stop <-chan struct{}, id string) (answers int) {
	for {
		select {
		case <-stop:
			return answers
		case <-time.After(time.Millisecond):
		}
		for _, n := range x.nodes {
			if !n.running() {
				continue
			}
			ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
			life, err := n.broker.Queries().Get(ctx, "orders.delay", id)
			cancel()
			if err != nil {
				continue
			}
			if answers++; life.Message == nil || life.Message.State != client.StateWaiting {
				x.t.Errorf("%s tells %+v", n.member.ID, life.Message)
			}
		}
	}
}
