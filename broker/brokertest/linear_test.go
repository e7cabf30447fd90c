package brokertest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/history"
	"github.com/carillonmq/carillon/raftfsm"
)

// Clients schedule, replace, cancel, change, get and list a few ids at once, at whichever node, while leaders
// are killed, frozen and cut off. There is an order in which all that they were told, and all that came out, is right.
func TestIDs_areLinearizable(t *testing.T) { judgeCalls(t, false) }

// The same where many messages expire, the target is paused now and then, and leaders hand over to one whose clock is behind.
func TestExpiry_isLinearizable(t *testing.T) { judgeCalls(t, true) }

func judgeCalls(t *testing.T, expiring bool) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			var calls []history.Call
			synctest.Test(t, func(t *testing.T) { calls = callAtRandom(t, seed, expiring) })
			expectAllKinds(t, calls)
			if expired := slices.ContainsFunc(calls, func(c history.Call) bool { return c.Verb == history.Get && c.Told == history.Expired }); expired != expiring {
				t.Errorf("that a message has expired was told: %v", expired)
			}
			if err := history.Check(calls, 5*time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
}

// callIDs is how many ids all calls are about: few, so that they meet. A message that may have expired is in more states, so
// there are more ids of fewer calls each, or some histories take a minute to judge.
const callIDs, callExpiringIDs = 4, 8

// A caller makes calls of several clients and keeps what came of them.
type caller struct {
	cluster  *Cluster
	begin    time.Time
	seed     uint64
	expiring bool // half of what is scheduled expires
	ids      int
	stopped  context.Context
	clients  sync.WaitGroup

	mu    sync.Mutex
	calls []history.Call
	at    map[string]int // of what was scheduled, by value: index in calls
}

func callAtRandom(t *testing.T, seed uint64, expiring bool) []history.Call {
	c := newCluster(t, parseArguments([]string{"nodes=3", "flush=16384"}))
	defer c.stop()
	p := newPlayer(c, NewReport())
	c.must(p.createTopic("orders.delay", arguments{}))
	c.must(p.createTopic("orders", arguments{}))
	c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
	c.await(time.Minute, "open ids", func() bool { return c.leader().raft().Store().IDsOpen() })

	disturb, ids := func(*rand.Rand) func() { return func() {} }, callIDs
	if expiring {
		c.setClocksApart()
		disturb, ids = c.pauseTarget, callExpiringIDs
	}
	stopped, stop := context.WithCancel(t.Context())
	all := &caller{cluster: c, begin: time.Now(), seed: seed, expiring: expiring, ids: ids, stopped: stopped, at: make(map[string]int)}
	for client := range 5 {
		all.clients.Go(func() { all.client(client) })
	}
	chance := rand.New(rand.NewPCG(seed, math.MaxUint64))
	for range 10 {
		time.Sleep(time.Duration(1+chance.IntN(5000)) * time.Millisecond)
		settle := disturb(chance)
		leader, lasts := c.leader(), time.Duration(200+chance.IntN(4000))*time.Millisecond
		switch chance.IntN(3) {
		case 0:
			leader.kill()
			time.Sleep(lasts)
			leader.start()
		case 1:
			leader.freeze()
			time.Sleep(lasts)
			leader.thaw()
		case 2: // from the other nodes: Kafka still takes what it sends
			c.network.set(cut, leader.member.ID, c.nodeHosts()...)
			time.Sleep(lasts)
			c.network.set(open, leader.member.ID, c.nodeHosts()...)
		}
		settle()
	}
	stop()
	all.clients.Wait()
	c.await(2*time.Minute, "end of all deliveries", func() bool { return c.leader().raft().Store().Pending() == 0 })
	return all.history(p)
}

// setClocksApart lets what has expired by one leader's clock wait by that of the next one.
func (c *Cluster) setClocksApart() {
	c.nodes[0].clock.step(200 * time.Millisecond)
	c.nodes[1].clock.step(-200 * time.Millisecond)
}

// pauseTarget pauses the target for some seconds, so that messages expire that nobody has claimed, and has leadership
// go from one clock to another meanwhile. What it returns ends the pause.
func (c *Cluster) pauseTarget(chance *rand.Rand) (resume func()) {
	_, err := c.leader().broker.Pause(context.Background(), pausedTarget)
	time.Sleep(time.Duration(chance.IntN(3000)) * time.Millisecond)
	for range 4 {
		time.Sleep(time.Duration(chance.IntN(1000)) * time.Millisecond)
		if n := c.leader().raft(); n != nil {
			_ = n.TransferLeadership(context.Background()) // another leads then, or none does
		}
	}
	if err != nil {
		return func() {}
	}
	return func() {
		time.Sleep(time.Duration(chance.IntN(1000)) * time.Millisecond)
		c.await(time.Minute, "resume", func() bool {
			_, err := c.leader().broker.Resume(context.Background(), pausedTarget)
			return err == nil
		})
	}
}

// cancelAt cancels about when the message is handed over, and its Ack is not in the log yet.
func (a *caller) cancelAt(at time.Time, id string, number int) {
	time.Sleep(time.Until(at))
	call, op := cancel(number, id)
	a.call(rand.New(rand.NewPCG(a.seed, uint64(number))), call, op, "")
}

// askAt asks about when the message expires, by the clock of one node or another, and cancels what it was told of.
func (a *caller) askAt(at time.Time, id string, number int) {
	time.Sleep(time.Until(at))
	chance := rand.New(rand.NewPCG(a.seed, uint64(number)))
	if _, ok := a.get(chance, number, id); ok {
		a.cancelAt(time.Now().Add(time.Duration(chance.IntN(100))*time.Millisecond), id, number)
	}
}

// history adds what came out, and what became of schedules that nobody was told of.
func (a *caller) history(p *player) []history.Call {
	inLog := make(map[string]uint64)
	for seq, accepted := range p.observer.ledger.Log.Accepted {
		inLog[accepted.Value] = seq
	}
	scheduled := make(map[uint64]history.Call)
	kept := a.calls[:0]
	for value, i := range a.at {
		if a.calls[i].Code == 0 {
			a.calls[i].Seq = inLog[value]
		}
	}
	for _, c := range a.calls {
		isWrite := c.Verb == history.Schedule || c.Verb == history.Change
		if isWrite && c.Code == 0 && c.Seq == 0 {
			continue // it never came to be
		}
		if isWrite && (c.Code == 0 || c.Code == raftfsm.Scheduled || c.Code == raftfsm.Superseded) {
			scheduled[c.Seq] = c
		}
		kept = append(kept, c)
	}
	first := make(map[uint64]bool)
	for _, d := range p.consume() {
		if by, known := scheduled[d.Seq]; known && !first[d.Seq] {
			first[d.Seq] = true
			kept = append(kept, history.Call{
				ID: by.ID, Client: 99, Verb: history.Deliver, From: by.From, To: int64(d.At.Add(time.Millisecond).Sub(a.begin)), Seq: d.Seq,
			})
		}
	}
	return kept
}
