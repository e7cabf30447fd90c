package brokertest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/history"
	"github.com/carillonmq/carillon/client"
)

// Programs schedule, replace, cancel, change, hurry, get and list a few ids at once over HTTP, some at one
// node and some at others as well when it fails, while leaders are killed, frozen and cut off. There
// is an order in which all that they were told, and all that came out, is right.
func TestAPI_isLinearizable(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			var calls []history.Call
			var err error
			testAPI(t, []string{"flush=16384", "sync=20ms"}, []string{"orders.delay", "orders"}, func(x *apiTest) { calls, err = x.callAtRandom(seed, x.newAdmin) })
			expectAllKinds(t, calls)
			if err == nil {
				err = history.Check(calls, 5*time.Minute)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The histories notice reads that are stale, where programs ask for such.
func TestAPI_isNotLinearizableWithStaleReads(t *testing.T) {
	var calls []history.Call
	var err error
	testAPI(t, []string{"flush=16384", "sync=20ms"}, []string{"orders.delay", "orders"}, func(x *apiTest) {
		calls, err = x.callAtRandom(1, func(number int) *client.Admin { return x.newAdmin(number).Stale() })
	})
	if err == nil {
		err = history.Check(calls, 5*time.Minute)
	}
	if err == nil || !strings.Contains(err.Error(), "are not linearizable (Illegal)") {
		t.Errorf("%v", err)
	}
}

// callAtRandom returns what came of the calls of several programs, and what came out.
func (x *apiTest) callAtRandom(seed uint64, newAdmin func(number int) *client.Admin) ([]history.Call, error) {
	x.await(time.Minute, "open ids", func() bool { return x.leader().raft().Store().IDsOpen() })
	ctx, stop := context.WithCancel(x.t.Context())
	clients := history.NewClients("orders.delay", seed)
	var running sync.WaitGroup
	for number := range 2 * len(x.nodes) {
		running.Go(func() {
			admin := newAdmin(number)
			defer admin.Close()
			clients.Run(ctx, number, admin)
		})
	}
	chance := rand.New(rand.NewPCG(seed, math.MaxUint64))
	for range 10 {
		x.pause(time.Duration(1+chance.IntN(5000)) * time.Millisecond)
		leader, lasts := x.leader(), time.Duration(200+chance.IntN(4000))*time.Millisecond
		switch chance.IntN(3) {
		case 0:
			x.silence(leader)
			leader.kill()
			x.pause(lasts)
			leader.start()
			x.serve(leader)
		case 1:
			leader.freeze()
			x.pause(lasts)
			leader.thaw()
		case 2: // from the other nodes: programs and Kafka still reach it
			x.network.set(cut, leader.member.ID, x.nodeHosts()...)
			x.pause(lasts)
			x.network.set(open, leader.member.ID, x.nodeHosts()...)
		}
	}
	stop()
	running.Wait()
	x.await(2*time.Minute, "end of all deliveries", func() bool { return x.leader().raft().Store().Pending() == 0 })
	return clients.History(x.accepted(), x.came())
}

// newAdmin returns a program's: of each node the first one knows only that, the second one asks it first.
func (x *apiTest) newAdmin(number int) *client.Admin {
	var addresses []string
	for i := range x.nodes {
		addresses = append(addresses, x.nodes[(number+i)%len(x.nodes)].member.API)
	}
	timeout := 4 * time.Second
	if number < len(x.nodes) { // its questions reach a leader that thaws moments after they were asked
		addresses, timeout = addresses[:1], 700*time.Millisecond
	}
	transport := &http.Transport{DialContext: x.network.dial(userHost), IdleConnTimeout: time.Second}
	admin, err := client.NewAdmin(addresses, client.AdminOptions{Transport: transport, Timeout: timeout})
	x.must(err)
	return admin
}

// accepted returns all messages that the log has.
func (x *apiTest) accepted() []history.Message {
	all := []history.Message{}
	for seq, a := range x.observer.ledger.Log.Accepted {
		all = append(all, history.Message{ID: a.ID.Text, Seq: seq, Value: a.Value})
	}
	return all
}

// came returns what came out, in order.
func (x *apiTest) came() (all []history.Message) {
	for _, d := range x.consume() {
		all = append(all, history.Message{ID: x.observer.ledger.Log.Accepted[d.Seq].ID.Text, Seq: d.Seq, Value: d.Value, At: d.At})
	}
	slices.SortFunc(all, func(a, b history.Message) int { return a.At.Compare(b.At) })
	return all
}
