package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/google/go-cmp/cmp"
)

// A leader is killed in the middle of a raise, under load: its successor and the node
// itself, once it is back, are of one level, and another raise completes it.
func TestLevel_isRaisedWholeOrNotAtAll(t *testing.T) {
	for _, test := range []struct {
		name    string
		cutFrom int // that many of the others do not get the command
		want    []storage.Level
	}{
		{"in no other log", 2, []storage.Level{storage.LevelOne}},
		{"in one other log", 1, []storage.Level{storage.NewestLevel}},
		{"on its way", 0, []storage.Level{storage.LevelOne, storage.NewestLevel}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				settings := parseArguments([]string{"nodes=3", "program=1", "flush=16384"})
				c := newCluster(t, settings)
				defer c.stop()
				p := newPlayer(c, NewReport())
				c.must(p.createTopic("orders.delay", arguments{}))
				c.must(p.createTopic("orders", arguments{}))
				c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
				time.Sleep(5 * time.Second)
				c.must(p.produce("orders.delay", parseArguments([]string{"count=500", "spread=20s", "deliver-after=10ms"})))
				for _, n := range c.nodes {
					n.install(storage.NewestLevel)
					time.Sleep(2 * time.Second)
				}
				leader := c.leader()
				others := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return n == leader })
				for _, n := range others[:test.cutFrom] {
					c.network.set(cut, leader.member.ID, n.member.ID)
				}
				raise := leader.raft().Propose(t.Context(), raftfsm.RaiseLevel{Level: storage.NewestLevel})
				if test.cutFrom == 1 {
					_, err := raise.Wait(t.Context())
					c.must(err)
				}
				leader.kill()
				c.network.set(open, leader.member.ID, c.hosts()...)
				if got := c.leader().raft().Store().Level(); !slices.Contains(test.want, got) {
					t.Errorf("level %d after the leader was killed, want one of %v", got, test.want)
				}
				leader.start()
				time.Sleep(5 * time.Second)
				if _, err := c.leader().broker.RaiseLevel(t.Context()); err != nil {
					t.Errorf("raise once more: %v", err)
				}
				p.settle(settings)
				for _, n := range c.nodes {
					if got := n.raft().Store().Level(); got != storage.NewestLevel {
						t.Errorf("%s is at level %d", n.member.ID, got)
					}
				}
				p.check(settings)
			})
		})
	}
}

func TestLevel_ofANewClusterIsTheLowestOfItsFounders(t *testing.T) {
	for name, want := range map[string]storage.Level{"": storage.NewestLevel, "n1": storage.LevelOne, "n2": storage.LevelOne} {
		t.Run("old: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, parseArguments([]string{"nodes=3"}))
				defer c.stop()
				if name != "" {
					c.node(name).program = storage.LevelOne
				}
				for _, n := range c.nodes {
					n.start()
				}
				if got := c.leader().raft().Store().Level(); got != want {
					t.Errorf("level %d, want %d", got, want)
				}
			})
		})
	}
}

// The time begins anew when a node is restarted, for it does not answer meanwhile: not
// in the middle of an upgrade, and not while one node is on the old program.
func TestLevel_isRaisedByItselfWhenAllHaveRunTheNewProgramForLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3", "program=1", "heartbeat=10s"}))
		defer c.stop()
		c.config.Cluster.RaiseAfter = 20 * time.Minute
		for _, n := range c.nodes {
			n.start()
		}
		level := func() storage.Level { return c.leader().raft().Store().Level() }
		time.Sleep(25 * time.Minute)
		for _, n := range c.nodes {
			if got := level(); got != storage.LevelOne {
				t.Fatalf("level %d before %s was upgraded", got, n.member.ID)
			}
			n.install(storage.NewestLevel)
			time.Sleep(15 * time.Minute)
		}
		follower := c.node("follower")
		follower.stop()
		time.Sleep(2 * time.Minute)
		follower.start()
		time.Sleep(15 * time.Minute)
		if got := level(); got != storage.LevelOne {
			t.Errorf("level %d, 15 minutes after a node was down", got)
		}
		time.Sleep(10 * time.Minute)
		if got := level(); got != storage.NewestLevel {
			t.Errorf("level %d, 25 minutes after all run the new program", got)
		}
	})
}

// A member that is down may run a newer program, but nothing is left to raise for the
// others.
func TestLevel_inForceIsNoErrorWhileAMemberIsDown(t *testing.T) {
	for _, level := range []storage.Level{storage.LevelOne, storage.LevelTwo} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, parseArguments([]string{"nodes=3"}))
				defer c.stop()
				for _, n := range c.nodes {
					n.program = level
					n.start()
				}
				c.leader()
				down := c.node("follower")
				down.stop()
				got, err := c.leader().broker.RaiseLevel(t.Context())
				want := broker.LevelRaise{LevelStatus: broker.LevelStatus{InForce: uint32(level), Understood: uint32(level)}, Silent: []string{down.member.ID}}
				if err != nil || !cmp.Equal(got, want) {
					t.Errorf("got %+v, error %v, want %+v", got, err, want)
				}
				if level == storage.NewestLevel {
					return
				}
				for _, n := range c.nodes {
					if n != down {
						n.install(storage.NewestLevel)
						time.Sleep(2 * time.Second)
					}
				}
				if got, err := c.leader().broker.RaiseLevel(t.Context()); err == nil {
					t.Errorf("raised to %+v though a member did not answer", got)
				}
			})
		})
	}
}

func TestLevel_isUnknownToANodeWithoutAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3"}))
		defer c.stop()
		n := c.nodes[0]
		n.start()
		time.Sleep(5 * time.Second)
		if got, want := n.broker.Status().Level, (broker.LevelStatus{Understood: uint32(storage.NewestLevel)}); got != want {
			t.Errorf("unborn: level %+v, want %+v", got, want)
		}
		for _, n := range c.nodes[1:] {
			n.start()
		}
		c.leader()
		if got := c.leader().broker.Status().Level.InForce; got != uint32(storage.NewestLevel) {
			t.Errorf("born: level %d", got)
		}
	})
}
