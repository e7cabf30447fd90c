package brokertest

import (
	"fmt"
	"github.com/carillonmq/carillon/client"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/google/go-cmp/cmp"
)

// dataOfLevelThree is the data directory of a node of one, killed while it ran the last program that
// knew level three and none above, ed499d7, in virtual time. It had taken in, from orders.delay,
//
//	100 "message 0" to "message 99", with the ids order-0 and so on, due at the beginning of 2035
//	 50 "plain 0" to "plain 49" without ids, due then
//	 20 "gone 0" to "gone 19" with ids, which it delivered two hours before
//	 10 "bill 0" to "bill 9" with ids, due an hour before, for the target bills, which ann has paused
//	    (here its schedule went to disk)
//	 10 cancels, of order-0 to order-9
//	 10 "again 10" to "again 19" in the place of order-10 to order-19
//	  1 that was refused: order-20, if absent
const dataOfLevelThree = "../testdata/data-ed499d7.tar.gz"

// openLevelThree starts a node on that data, ten minutes before most of it is due.
func openLevelThree(t *testing.T) (x *idTest, n *node) {
	settings := parseArguments([]string{"nodes=1"})
	c := newCluster(t, settings)
	dir := c.dataDir("n1", 0)
	unpack(t, dataOfLevelThree, dir)
	n = oldNode(t, c, dir)
	x = &idTest{newPlayer(c, NewReport()), settings}
	n.clock.step(time.Until(time.Date(2034, 12, 31, 23, 50, 0, 0, time.UTC)))
	x.must(x.createTopic("orders", arguments{}))
	x.must(x.createTopic("bills", arguments{}))
	n.start()
	x.leader()
	return x, n
}

// eventsOf returns what ended under the id, and whether something waits under it.
func (x *idTest) eventsOf(n *node, id string) (events []string, waits bool) {
	x.t.Helper()
	e, err := n.broker.Explain(x.t.Context(), "orders.delay", id)
	x.must(err)
	for _, event := range e.Events {
		events = append(events, event.What)
	}
	return events, e.Waiting != nil
}

// What a node of level three knew is known, before the raise, after it, and after a restart. What the
// new level brings works on messages of the level before, and survives the restart.
func TestOldData_ofLevelThreeIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, n := openLevelThree(t)
		defer x.stop()
		check := func(level storage.Level, pending uint64) {
			t.Helper()
			state := n.raft().Store().State()
			if state.Level != level || state.Pending != pending || !n.raft().Store().IDsOpen() {
				t.Errorf("level %d, %d pending, ids open: %t", state.Level, state.Pending, n.raft().Store().IDsOpen())
			}
			for id, want := range map[string][]string{"order-3": {"cancelled"}, "order-12": {"replaced"}, "order-20": {"refused"}, "order-21": nil, "gone-4": {"delivered"}, "bill-4": nil} {
				if got, waits := x.eventsOf(n, id); !slices.Equal(got, want) || waits != (id != "order-3" && id != "gone-4") {
					t.Errorf("%s: %v, waits: %t", id, got, waits)
				}
			}
			if paused := n.broker.Status().Paused; len(paused) != 1 || paused[0].Name != "bills" || paused[0].Why != "stock taking" {
				t.Errorf("paused %+v", paused)
			}
			if err := n.raft().Store().Check(); err != nil {
				t.Error(err)
			}
		}
		check(storage.LevelThree, 150)
		if _, err := n.broker.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(storage.NewestLevel, 150)

		plain := x.plainOf(n, "plain 7")
		cancel := raftfsm.Operate{Time: 1, Operations: []raftfsm.Operation{{
			Verb: raftfsm.Cancel, Of: &storage.Found{Ref: plain.Ref, Target: plain.Target, Topic: plain.Topic}, Once: &raftfsm.Once{Key: name.Of("", "a key"), Content: 5},
		}}}
		x.answers(n, cancel, raftfsm.Answer{Code: raftfsm.WasCancelled, Seq: plain.Seq})
		n.stop()
		n.start()
		x.leader()
		check(storage.NewestLevel, 149)
		x.answers(n, cancel, raftfsm.Answer{Code: raftfsm.WasCancelled, Seq: plain.Seq, Again: true})

		x.pause(20 * time.Minute)
		x.resume(client.Pause{Kind: client.PauseTarget, Name: "bills", Who: "ann"})
		x.pause(time.Minute)
		var orders, bills []string
		for i := range 100 {
			switch {
			case i < 10:
				bills = append(bills, fmt.Sprint("bill ", i))
			case i < 20:
				orders = append(orders, fmt.Sprint("again ", i))
			default:
				orders = append(orders, fmt.Sprint("message ", i))
			}
			if i < 50 && i != 7 {
				orders = append(orders, fmt.Sprint("plain ", i))
			}
		}
		x.expectDelivered("orders", orders...)
		x.expectDelivered("bills", bills[1:]...) // the first one expired at the beginning of 2035
		x.expectDelivered(x.config.DeadLetter.Topic)
	})
}

// plainOf returns the message without an id that has the value.
func (x *idTest) plainOf(n *node, value string) storage.Listed {
	x.t.Helper()
	page, err := n.raft().Store().List(x.t.Context(), storage.ListQuery{Last: math.MaxInt64, Limit: 1000, Bodies: true})
	x.must(err)
	for _, item := range page.Items {
		m, err := message.FromEntry(&storage.Entry{Topic: item.Topic, ID: item.ID, Body: item.Body})
		x.must(err)
		if string(m.Value) == value && m.ID == "" {
			return item
		}
	}
	x.t.Fatalf("%q is not there", value)
	return storage.Listed{}
}

// answers has the node carry out the operations.
func (x *idTest) answers(n *node, c raftfsm.Operate, want ...raftfsm.Answer) {
	x.t.Helper()
	result, err := n.raft().Propose(x.t.Context(), c).Wait(x.t.Context())
	x.must(err)
	if diff := cmp.Diff([][]raftfsm.Answer{want}, result.Answers); diff != "" {
		x.t.Errorf("answers (-want +got):\n%s", diff)
	}
}
