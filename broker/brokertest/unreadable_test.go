package brokertest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A body that cannot be decoded costs its message the delivery, as long as that is so, and
// nobody else anything: no term ends for it, and each new one finds it again.
func TestUnreadableMessage_staysAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := parseArguments([]string{"nodes=3", "left=1", "duplicates=0"})
		c := newCluster(t, settings)
		defer c.stop()
		p := newPlayer(c, NewReport())
		c.must(p.createTopic("orders.delay", arguments{}))
		c.must(p.createTopic("orders", arguments{}))
		for _, n := range c.nodes {
			n.start()
		}
		time.Sleep(5 * time.Second)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=1", "deliver-after=5s"})))
		time.Sleep(2 * time.Second)
		leader := p.leader()
		waiting, _, _, err := leader.raft().Store().Scan(storage.Ref{}, storage.Ref{}, 1, nil, nil)
		c.must(err)
		_, err = leader.raft().Propose(t.Context(), raftfsm.Replace{
			Time:    time.Now().UnixMilli(),
			Kills:   []uint64{waiting[0].Seq},
			Entries: []storage.Entry{{Due: waiting[0].Due, Target: "orders", Body: []byte{200, 1, 2, 3}}},
		}).Wait(t.Context())
		c.must(err)
		for range 2 {
			leader := p.leader()
			term := leader.raft().Status().Term
			c.must(p.produce("orders.delay", parseArguments([]string{"count=100", "spread=5s", "deliver-after=2s"})))
			time.Sleep(2 * time.Minute) // the lane is gone meanwhile
			isNamed := func(problem string) bool { return strings.Contains(problem, "messages cannot be read") }
			if problems := leader.broker.Status().Problems; !slices.ContainsFunc(problems, isNamed) {
				t.Errorf("the leader has the problems %q", problems)
			}
			if p.leader() != leader || leader.raft().Status().Term != term {
				t.Error("a term has ended")
			}
			leader.stop()
			leader.start()
			time.Sleep(10 * time.Second)
		}
		p.produced = p.produced[1:] // the rest is as ever
		p.settle(settings)
		p.check(settings)
	})
}
