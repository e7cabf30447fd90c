package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An idTest is a cluster that is told by headers what to do with ids.
type idTest struct {
	*player
	settings arguments
}

// testIDs plays in a cluster that is founded by programs of that level.
func testIDs(t *testing.T, founded storage.Level, play func(*idTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		settings := parseArguments([]string{"nodes=3", "flush=16384"})
		c := newCluster(t, settings)
		defer c.stop()
		for _, n := range c.nodes {
			n.program = founded
		}
		x := &idTest{newPlayer(c, NewReport()), settings}
		c.must(x.createTopic("orders.delay", arguments{}))
		c.must(x.createTopic("orders", arguments{}))
		c.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		c.leader()
		x.pause(5 * time.Second)
		play(x)
		x.checkStores()
	})
}

// send produces records of these values, or of one when there is none, and waits until they are
// taken in.
func (x *idTest) send(options []client.Option, values ...string) {
	x.t.Helper()
	user, _ := x.user()
	defer user.Close()
	for _, value := range append(values, make([]string, max(0, 1-len(values)))...) {
		r := &kgo.Record{Topic: "orders.delay", Value: []byte(value)}
		x.must(client.Stamp(r, options...))
		x.must(user.ProduceSync(x.t.Context(), r).FirstErr())
	}
	x.await(time.Minute, "intake", func() bool { return x.positions(x.leader()) == "" })
}

func options(o ...client.Option) []client.Option { return o }

// delivered returns the values that a topic has got, sorted.
func (x *idTest) delivered(topic string) (values []string) {
	for _, d := range x.consume() {
		if d.Topic == topic {
			values = append(values, d.Value)
		}
	}
	slices.Sort(values)
	return values
}

func (x *idTest) expectDelivered(topic string, want ...string) {
	x.t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, x.delivered(topic)); diff != "" {
		x.t.Errorf("%s (-want +got):\n%s", topic, diff)
	}
}

// expectLife checks what every node tells of an id under which nothing waits.
func (x *idTest) expectLife(id string, want ...string) {
	x.t.Helper()
	for _, n := range x.nodes {
		e, err := n.broker.Explain(x.t.Context(), "orders.delay", id)
		x.must(err)
		var got []string
		for _, event := range e.Events {
			got = append(got, event.What)
		}
		if !slices.Equal(got, want) || e.Waiting != nil {
			x.t.Errorf("%s tells of %q: %q", n.member.ID, id, e.Words)
		}
	}
}

// seqOf returns the seq that the id stands for on every node alike; 0: none.
func (x *idTest) seqOf(id string) uint64 {
	x.t.Helper()
	x.pause(time.Second) // followers apply, too
	var seqs []uint64
	for _, n := range x.nodes {
		found, _, err := n.raft().Store().Lookup("orders.delay", id)
		x.must(err)
		seqs = append(seqs, found.Seq)
	}
	if slices.Min(seqs) != slices.Max(seqs) {
		x.t.Errorf("%q stands for %v", id, seqs)
	}
	return seqs[0]
}

func TestIDs_areCancelledReplacedAndExpireByHeaders(t *testing.T) {
	testIDs(t, storage.LevelThree, func(x *idTest) {
		in := func(d time.Duration) client.Option { return client.After(d) }
		const minute = time.Minute
		x.send(options(in(minute), client.ID("a")), "a: cancelled")
		x.send(options(in(minute), client.ID("b")), "b: replaced")
		x.send(options(in(minute), client.ID("c")), "c: kept")
		x.send(options(in(minute), client.ID("d")), "d: kept")
		x.send(options(in(minute), client.ID("e")), "e: replaced if present")
		x.send(options(in(minute), client.ID("f")), "f: replaced by its seq")
		x.send(options(in(minute), client.ID("g"), client.ExpiresAfter(time.Second)), "g: in time")
		x.send(options(in(minute)), "without an id")
		seq := x.seqOf("f")

		x.send(options(client.Cancel("a")))
		x.send(options(in(2*minute), client.ID("b")), "b: new")
		x.send(options(in(minute), client.ID("c"), client.IfAbsent()), "c: refused")
		x.send(options(in(minute), client.ID("d"), client.IfSeq(fmt.Sprint(seq))), "d: refused")
		x.send(options(in(minute), client.ID("e"), client.IfPresent()), "e: new")
		cluster := x.leader().raft().Store().State().ClusterID
		x.send(options(in(minute), client.ID("f"), client.IfSeq(fmt.Sprintf("%x/%d", cluster, seq))), "f: new")
		x.send(options(client.Cancel("f"), client.IfSeq(fmt.Sprintf("%032x/%d", 1, x.seqOf("f"))))) // of another cluster
		x.send(options(client.Cancel("never seen")))
		x.send(options(in(minute), client.ID("h"), client.IfPresent()), "h: refused")
		x.send(options(in(minute), client.ID("i"), client.IfAbsent()), "i: new")

		x.leader().kill()
		x.pause(10 * time.Second)
		x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		x.leader()
		x.send(options(client.Cancel("a"))) // once more
		x.pause(3 * minute)
		x.expectLife("a", "cancelled")
		x.expectLife("b", "replaced", "delivered")
		x.expectLife("c", "refused", "delivered")
		x.expectLife("d", "refused", "delivered")
		x.expectLife("e", "replaced", "delivered")
		x.expectLife("f", "replaced", "refused", "delivered")
		x.expectLife("g", "delivered")
		x.expectLife("h", "refused")
		x.expectLife("i", "delivered")
		x.expectLife("never seen")
		x.expectDelivered("orders", "b: new", "c: kept", "d: kept", "e: new", "f: new", "g: in time", "i: new", "without an id")
		x.expectDelivered(x.config.DeadLetter.Topic)
	})
}

// A refusal says which record it was, on every node and over a restart of all of them.
func TestIDs_tellWhichRecordWasRefused(t *testing.T) {
	testIDs(t, storage.LevelFour, func(x *idTest) {
		x.send(options(client.After(time.Hour), client.ID("a")), "a", "a again", "a once more")
		x.send(options(client.After(time.Hour), client.ID("a"), client.IfAbsent()), "refused")
		x.send(options(client.Cancel("a"), client.IfSeq("1")))
		x.pause(10 * time.Second)
		refused := func() (all []string) {
			for _, n := range x.nodes {
				e, err := n.broker.Explain(x.t.Context(), "orders.delay", "a")
				x.must(err)
				for i, event := range e.Events {
					if event.What == "refused" {
						all = append(all, e.Words[i])
					}
				}
			}
			return all
		}
		before := refused()
		for i, words := range before {
			if want := fmt.Sprintf("the record orders.delay/0/%d had no effect at ", 3+i%2); !strings.HasPrefix(words, want) {
				x.t.Errorf("%q, want %s", words, want)
			}
		}
		for _, n := range x.nodes {
			n.kill()
		}
		x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		x.leader()
		x.pause(10 * time.Second)
		if after := refused(); len(before) != 6 || !slices.Equal(after, before) {
			x.t.Errorf("it is told of %q, before the restart of %q", after, before)
		}
	})
}

// Level three comes to a cluster in which messages with ids wait, some of which share theirs.
func TestIDs_ofBeforeTheRaiseCanBeCancelledAfterIt(t *testing.T) {
	testIDs(t, storage.LevelTwo, func(x *idTest) {
		at := client.At(time.Now().Add(10 * time.Minute))
		var want []string
		for i := range 300 { // more than a flush
			value := fmt.Sprint("old ", i, strings.Repeat(".", 100))
			x.send(options(at, client.ID(fmt.Sprint("old", i))), value)
			if i%3 != 0 {
				want = append(want, value)
			}
		}
		x.send(options(at, client.ID("shared")), "shared, 1", "shared, 2", "shared, 3")
		want = append(want, "shared, 1", "shared, 2") // the newest is cancelled
		x.send([]client.Option{client.Cancel("old1")}, "refused below the level")

		if _, err := x.leader().broker.Explain(x.t.Context(), "orders.delay", "old0"); !errors.Is(err, broker.ErrNoIDs) {
			x.t.Errorf("explained below the level: %v", err)
		}
		for _, n := range x.nodes {
			n.install(storage.LevelThree)
			x.pause(2 * time.Second)
		}
		x.leader()
		if _, err := x.leader().broker.RaiseLevel(x.t.Context()); err != nil {
			x.t.Fatal(err)
		}
		x.send(options(client.Cancel("old0"))) // at once: intake waits for the ids to be open
		if !x.leader().raft().Store().IDsOpen() {
			x.t.Error("ids are not open")
		}
		for i := 3; i < 300; i += 3 {
			x.send(options(client.Cancel(fmt.Sprint("old", i))))
		}
		x.send(options(client.Cancel("shared")))
		for _, n := range x.nodes { // from its disk
			n.stop()
			x.pause(3 * time.Second)
			n.start()
			x.pause(3 * time.Second)
		}
		if got := x.seqOf("old3"); got != 0 {
			x.t.Errorf("what was cancelled is still %d", got)
		}
		if got := x.seqOf("old1"); got != 2 {
			x.t.Errorf("old1 stands for %d, want 2", got)
		}
		e, err := x.leader().broker.Explain(x.t.Context(), "orders.delay", "old1")
		x.must(err)
		if w := e.Waiting; w == nil || w.Seq != 2 || w.Target != "orders" || w.State != broker.StateWaiting || len(e.Events) != 0 {
			x.t.Errorf("old1: %q", e.Words)
		}
		x.pause(15 * time.Minute)
		x.expectDelivered("orders", want...)
		x.expectDelivered(x.config.DeadLetter.Topic, "refused below the level")
	})
}

// A leader that is killed while it reads ids leaves it to the next one to begin anew.
func TestIDs_areOpenedByTheNextLeader(t *testing.T) {
	testIDs(t, storage.LevelTwo, func(x *idTest) {
		at := client.At(time.Now().Add(10 * time.Minute))
		for i := range 50 {
			x.send(options(at, client.ID(fmt.Sprint("old", i))), "old")
		}
		for _, n := range x.nodes {
			n.install(storage.LevelThree)
			x.pause(2 * time.Second)
		}
		first := x.leader()
		_, err := first.raft().Propose(x.t.Context(), raftfsm.RaiseLevel{Level: storage.LevelThree}).Wait(x.t.Context())
		x.must(err)
		if first.raft().Store().IDsOpen() {
			x.t.Fatal("ids are open already")
		}
		first.kill()
		x.pause(5 * time.Second)
		for i := range 50 {
			x.send(options(client.Cancel(fmt.Sprint("old", i))))
		}
		first.start()
		x.pause(15 * time.Minute)
		x.expectDelivered("orders")
		x.expectLife("old49", "cancelled")
	})
}

// A target that does not exist: what expires meanwhile is never sent.
func TestIDs_expireWhileTheirTargetIsParked(t *testing.T) {
	testIDs(t, storage.LevelThree, func(x *idTest) {
		x.send(options(client.After(time.Second), client.To("later"), client.ID("a"), client.ExpiresAfter(10*time.Second)), "expired")
		x.send(options(client.After(time.Second), client.To("later"), client.ID("b"), client.ExpiresAfter(time.Hour)), "in time")
		x.pause(30 * time.Second)
		x.must(x.createTopic("later", arguments{}))
		x.pause(2 * time.Minute)
		x.expectLife("a", "expired")
		x.expectLife("b", "delivered")
		x.expectDelivered("later", "in time")
		x.expectDelivered(x.config.DeadLetter.Topic)
	})
}
