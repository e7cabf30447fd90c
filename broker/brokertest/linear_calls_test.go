package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/history"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// client makes one call after the other.
func (a *caller) client(number int) {
	chance := rand.New(rand.NewPCG(a.seed, uint64(number)))
	for i := 0; ; i++ {
		select {
		case <-a.stopped.Done():
			return
		case <-time.After(time.Duration(chance.IntN(600)) * time.Millisecond):
		}
		id := fmt.Sprint("id-", chance.IntN(a.ids))
		switch chance.IntN(10) {
		case 0:
			a.get(chance, number, id)
		case 1:
			a.list(chance, number)
		case 2, 3, 4:
			a.change(chance, number, i, id)
		case 5, 6:
			call, op := cancel(number, id)
			a.condition(chance, &call, &op)
			a.call(chance, call, op, "")
		default:
			a.schedule(chance, number, i, id)
		}
	}
}

func cancel(client int, id string) (history.Call, raftfsm.Operation) {
	return history.Call{ID: id, Client: client, Verb: history.Cancel},
		raftfsm.Operation{Verb: raftfsm.Cancel, Entry: storage.Entry{Topic: "orders.delay", ID: id}}
}

// schedule schedules a message, and may cancel it about when it is due, and again when it expires.
func (a *caller) schedule(chance *rand.Rand, client, i int, id string) {
	call := history.Call{ID: id, Client: client, Verb: history.Schedule}
	entry, value := a.newEntry(chance, &call, i)
	op := raftfsm.Operation{Verb: raftfsm.Schedule, Entry: entry}
	a.condition(chance, &call, &op)
	a.call(chance, call, op, value)
	if chance.IntN(2) == 0 {
		at := time.UnixMilli(op.Entry.Due).Add(time.Duration(chance.IntN(60)-40) * time.Millisecond)
		a.clients.Go(func() { a.cancelAt(at, id, client+10*i) })
	}
	if expires := op.Entry.Expires; expires > 0 {
		at := time.UnixMilli(expires).Add(time.Duration(chance.IntN(500)-250) * time.Millisecond)
		a.clients.Go(func() { a.askAt(at, id, 1000+client+10*i) })
	}
}

// change reads what waits, and puts another message into the place of the one that it has read.
func (a *caller) change(chance *rand.Rand, client, i int, id string) {
	found, ok := a.get(chance, client, id)
	if !ok {
		return
	}
	call := history.Call{ID: id, Client: client, Verb: history.Change}
	entry, value := a.newEntry(chance, &call, i)
	op := raftfsm.Operation{Verb: raftfsm.Change, Entry: entry}
	if found.Told == history.Waiting {
		op.If, op.Seq = raftfsm.Exactly, found.Seq
	}
	call.If, call.Exact = op.If, op.Seq
	a.call(chance, call, op, value)
}

// newEntry returns a message of the call that is due within seconds, and may expire soon after, and its value, which no
// other one has.
func (a *caller) newEntry(chance *rand.Rand, call *history.Call, i int) (storage.Entry, string) {
	value := fmt.Sprintf("%d of %d", i, call.Client)
	expires := a.expiring && chance.IntN(2) == 0
	soon := 3000
	if expires {
		soon = 600 // before others replace it
	}
	due := time.Now().Add(time.Duration(chance.IntN(soon)) * time.Millisecond).UnixMilli()
	m := message.Message{ID: call.ID, Origin: message.Origin{Topic: "orders.delay", Partition: int32(call.Client), Offset: int64(i)}, PlannedFor: due, Partition: -1, Value: []byte(value)}
	if expires {
		m.Expires = due + 1 + chance.Int64N(400)
		call.Expires = int64(time.UnixMilli(m.Expires).Sub(a.begin))
	}
	return m.Entry(due, "orders", storage.LevelThree), value
}

// condition gives some operations one.
func (a *caller) condition(chance *rand.Rand, call *history.Call, op *raftfsm.Operation) {
	if chance.IntN(4) == 0 {
		op.If = raftfsm.Condition(1 + chance.IntN(3))
		op.Seq = a.anySeq(chance, call.ID)
		call.If, call.Exact = op.If, op.Seq
	}
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
	asked := a.cluster.nodes[chance.IntN(len(a.cluster.nodes))]
	node := asked.raft()
	if node == nil {
		return
	}
	call.From, call.To = int64(time.Since(a.begin)), math.MaxInt64
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	command := raftfsm.Operate{Time: time.Now().Add(wrong(asked)).UnixMilli(), Operations: []raftfsm.Operation{op}}
	result, err := node.Propose(ctx, command).Wait(ctx)
	if err != nil && !errors.Is(err, raftfsm.ErrInDoubt) {
		return
	}
	if err == nil {
		answer := result.Answers[0][0]
		call.To, call.Code, call.Before = int64(time.Since(a.begin)), answer.Code, answer.Before
		call.Seq = answer.Seq
		switch {
		case answer.Outcome != nil:
			call.Told, call.Seq = history.Known(client.Life{Outcomes: []client.Outcome{query.OutcomeOf(*answer.Outcome)}})
		case answer.Code == raftfsm.TooLate:
			call.Told = history.Claimed
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if value != "" {
		a.at[value] = len(a.calls)
	}
	a.calls = append(a.calls, call)
}

// read asks one node after the other until one answers, and returns the call of that one.
func (a *caller) read(chance *rand.Rand, question func(context.Context, *query.Desk) error) (call history.Call, ok bool) {
	for _, i := range chance.Perm(len(a.cluster.nodes)) {
		node := a.cluster.nodes[i]
		if !node.running() {
			continue
		}
		call.From = int64(time.Since(a.begin))
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := question(ctx, node.broker.Queries())
		cancel()
		if call.To = int64(time.Since(a.begin)); err == nil {
			return call, true
		}
	}
	return call, false
}

func (a *caller) get(chance *rand.Rand, number int, id string) (history.Call, bool) {
	var life client.Life
	call, ok := a.read(chance, func(ctx context.Context, d *query.Desk) (err error) {
		life, err = d.Get(ctx, "orders.delay", id)
		return err
	})
	if !ok {
		return call, false
	}
	call.ID, call.Client, call.Verb = id, number, history.Get
	call.Told, call.Seq = history.Known(life)
	a.keep(call)
	return call, true
}

// list reads what waits under any id. Histories are judged id by id, so it is a call for each.
func (a *caller) list(chance *rand.Rand, number int) {
	var page client.Page
	read, ok := a.read(chance, func(ctx context.Context, d *query.Desk) (err error) {
		page, err = d.List(ctx, query.ListRequest{Filter: client.Filter{Topic: "orders.delay", Prefix: "id-"}, Limit: query.MostListed})
		return err
	})
	if !ok || page.Next != "" {
		return
	}
	read.Client, read.Verb = number, history.List
	listed := make(map[string]bool)
	for _, m := range page.Messages {
		if m.State != client.StateClaimed && m.State != client.StateExpired {
			call := read
			call.ID, call.Seq = m.ID, m.Seq
			listed[m.ID] = true
			a.keep(call)
		}
	}
	for i := range a.ids {
		call := read
		if call.ID = fmt.Sprint("id-", i); !listed[call.ID] {
			a.keep(call)
		}
	}
}

func (a *caller) keep(call history.Call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, call)
}

// expectAllKinds fails if calls of some kind are missing, without which a history proves too little.
func expectAllKinds(t *testing.T, calls []history.Call) {
	t.Helper()
	told := make(map[string]int)
	for _, c := range calls {
		told[strings.TrimSuffix(fmt.Sprintf("%v %v", c.Verb, c.Code), " code(0)")]++
		if c.Told == history.Expired {
			told[fmt.Sprintf("%v expired", c.Verb)]++
		}
	}
	t.Logf("%d calls and deliveries: %v", len(calls), told)
	for _, needed := range []string{"schedule replaced", "cancel cancelled", "cancel too-late", "change replaced", "get", "list", "deliver"} {
		if told[needed] == 0 {
			t.Errorf("no %s: the calls prove too little", needed)
		}
	}
}
