package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/history"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// Clients schedule, replace and cancel a few ids at once, at whichever node, while leaders are killed,
// frozen and cut off. There is an order in which all that they were told, and all that came out, is right.
func TestIDs_areLinearizable(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			var calls []history.Call
			synctest.Test(t, func(t *testing.T) { calls = callAtRandom(t, seed) })
			told := make(map[raftfsm.Code]int)
			for _, c := range calls {
				told[c.Code]++
			}
			t.Logf("%d calls and deliveries, by code: %v", len(calls), told)
			if len(calls) < 100 || told[raftfsm.WasCancelled] == 0 || told[raftfsm.TooLate] == 0 || told[raftfsm.Superseded] == 0 {
				t.Error("too little came of the calls to prove anything")
			}
			if err := history.Check(calls, time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
}

// A caller makes calls of several clients and keeps what came of them.
type caller struct {
	cluster *Cluster
	begin   time.Time
	seed    uint64
	stopped context.Context
	clients sync.WaitGroup

	mu    sync.Mutex
	calls []history.Call
	at    map[string]int // of what was scheduled, by value: index in calls
}

func callAtRandom(t *testing.T, seed uint64) []history.Call {
	c := newCluster(t, parseArguments([]string{"nodes=3", "flush=16384"}))
	defer c.stop()
	p := newPlayer(c, NewReport())
	c.must(p.createTopic("orders.delay", arguments{}))
	c.must(p.createTopic("orders", arguments{}))
	c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
	c.await(time.Minute, "open ids", func() bool { return c.leader().raft().Store().IDsOpen() })

	stopped, stop := context.WithCancel(t.Context())
	all := &caller{cluster: c, begin: time.Now(), seed: seed, stopped: stopped, at: make(map[string]int)}
	for client := range 5 {
		all.clients.Go(func() { all.client(client) })
	}
	chance := rand.New(rand.NewPCG(seed, math.MaxUint64))
	for range 6 {
		time.Sleep(time.Duration(1+chance.IntN(5000)) * time.Millisecond)
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
	}
	stop()
	all.clients.Wait()
	c.await(2*time.Minute, "end of all deliveries", func() bool { return c.leader().raft().Store().Pending() == 0 })
	return all.history(p)
}

// client makes one call after the other.
func (a *caller) client(number int) {
	chance := rand.New(rand.NewPCG(a.seed, uint64(number)))
	for i := 0; ; i++ {
		select {
		case <-a.stopped.Done():
			return
		case <-time.After(time.Duration(chance.IntN(600)) * time.Millisecond):
		}
		call := history.Call{ID: fmt.Sprint("id-", chance.IntN(4)), Client: number, Verb: history.Schedule, To: math.MaxInt64}
		op := raftfsm.Operation{Verb: raftfsm.Schedule, Entry: storage.Entry{Topic: "orders.delay", ID: call.ID}}
		value := fmt.Sprintf("%d of %d", i, number)
		if chance.IntN(2) == 0 {
			call.Verb, op.Verb = history.Cancel, raftfsm.Cancel
		} else {
			due := time.Now().Add(time.Duration(chance.IntN(3000)) * time.Millisecond).UnixMilli()
			m := message.Message{ID: call.ID, Origin: message.Origin{Topic: "orders.delay", Partition: int32(number), Offset: int64(i)}, PlannedFor: due, Partition: -1, Value: []byte(value)}
			op.Entry = m.Entry(due, "orders", storage.LevelThree)
		}
		if chance.IntN(4) == 0 {
			op.If = raftfsm.Condition(1 + chance.IntN(3))
			op.Seq = a.anySeq(chance, call.ID)
			call.If, call.Exact = op.If, op.Seq
		}
		a.call(chance, call, op, value)
		if call.Verb == history.Schedule && chance.IntN(2) == 0 {
			at := time.UnixMilli(op.Entry.Due).Add(time.Duration(chance.IntN(60)-40) * time.Millisecond)
			a.clients.Go(func() { a.cancelAt(at, call.ID, number+10*i) })
		}
	}
}

// cancelAt cancels about when the message is handed over, and its Ack is not in the log yet.
func (a *caller) cancelAt(at time.Time, id string, number int) {
	time.Sleep(time.Until(at))
	call := history.Call{ID: id, Client: number, Verb: history.Cancel, To: math.MaxInt64}
	op := raftfsm.Operation{Verb: raftfsm.Cancel, Entry: storage.Entry{Topic: "orders.delay", ID: id}}
	a.call(rand.New(rand.NewPCG(a.seed, uint64(number))), call, op, "")
}

// anySeq returns one that was told of the id, mostly the last.
func (a *caller) anySeq(chance *rand.Rand, id string) (seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c.ID == id && c.Seq > 0 && (seq == 0 || chance.IntN(4) > 0) {
			seq = c.Seq
		}
	}
	return max(seq, 1)
}

// call asks any node that runs. One that certainly proposed nothing leaves no trace.
func (a *caller) call(chance *rand.Rand, call history.Call, op raftfsm.Operation, value string) {
	node := a.cluster.nodes[chance.IntN(len(a.cluster.nodes))].raft()
	if node == nil {
		return
	}
	call.From = int64(time.Since(a.begin))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	command := raftfsm.Operate{Time: time.Now().UnixMilli(), Operations: []raftfsm.Operation{op}}
	result, err := node.Propose(ctx, command).Wait(ctx)
	if err != nil && !errors.Is(err, raftfsm.ErrInDoubt) {
		return
	}
	if err == nil {
		answer := result.Answers[0][0]
		call.To, call.Code, call.Before = int64(time.Since(a.begin)), answer.Code, answer.Before
		call.Seq = max(answer.Seq, answer.Outcome.Seq)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if call.Verb == history.Schedule {
		a.at[value] = len(a.calls)
	}
	a.calls = append(a.calls, call)
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
		if c.Verb == history.Schedule && c.Code == 0 && c.Seq == 0 {
			continue // it never came to be
		}
		if c.Verb == history.Schedule && c.Code != raftfsm.Conflict {
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
