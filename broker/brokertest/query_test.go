package brokertest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/query"
)

// ask returns how many messages the node says are pending.
func ask(t *testing.T, n *node) (uint64, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	page, err := n.broker.Queries().List(ctx, query.ListRequest{Limit: 1000})
	if err == nil && uint64(len(page.Messages)) != page.Pending {
		t.Errorf("%s lists %d messages of %d", n.member.ID, len(page.Messages), page.Pending)
	}
	return page.Pending, err
}

// A leader that is cut off, or stands still, and does not know yet that another one leads, answers nothing
// that is not true any more.
func TestQueries_areNeverStale(t *testing.T) {
	faults := map[string]struct{ begin, end func(c *Cluster, n *node) }{
		"cut off": {
			func(c *Cluster, n *node) { c.network.set(cut, n.member.ID, c.nodeHosts()...) },
			func(c *Cluster, n *node) { c.network.set(open, n.member.ID, c.nodeHosts()...) },
		},
		"silent": {
			func(c *Cluster, n *node) { c.network.set(silent, n.member.ID, c.nodeHosts()...) },
			func(c *Cluster, n *node) { c.network.set(open, n.member.ID, c.nodeHosts()...) },
		},
		"frozen": {
			func(_ *Cluster, n *node) { n.freeze() },
			func(_ *Cluster, n *node) { n.thaw() },
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, parseArguments([]string{"nodes=3"}))
				defer c.stop()
				p := &player{Cluster: c, start: time.Now()}
				c.must(p.createTopic("orders.delay", arguments{}))
				c.must(p.createTopic("orders", arguments{}))
				c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
				time.Sleep(5 * time.Second)
				p.produceHourly(10)
				time.Sleep(2 * time.Second)
				old := c.leader()
				for _, n := range c.nodes {
					got, err := ask(t, n)
					other, isOther := errors.AsType[*query.NotLeaderError](err)
					if n == old && (err != nil || got != 10) || n != old && (!isOther || other.Leader != old.member.ID) {
						t.Errorf("%s: %d pending, error %v, %s leads", n.member.ID, got, err, old.member.ID)
					}
				}

				fault.begin(c, old)
				var leader *node
				for leader == nil {
					time.Sleep(10 * time.Millisecond)
					if got, err := ask(t, old); err == nil && got != 10 {
						t.Errorf("%d pending", got)
					}
					for _, n := range c.nodes {
						if n != old && n.broker.Leading() {
							leader = n
						}
					}
				}
				p.produceHourly(5)
				c.await(time.Minute, "5 more", func() bool {
					got, err := ask(t, leader)
					return err == nil && got == 15
				})
				refused := 0
				for range 10 {
					switch got, err := ask(t, old); {
					case err != nil:
						refused++
					case got != 15:
						t.Fatalf("the old leader says that %d are pending, after the new one has said 15", got)
					}
				}
				fault.end(c, old)
				for range 100 {
					if got, err := ask(t, old); err == nil && got != 15 {
						t.Fatalf("the old leader says that %d are pending, after it is back", got)
					}
					time.Sleep(10 * time.Millisecond)
				}
				if refused != 10 {
					t.Errorf("%d answers of a leader that reaches nobody", 10-refused)
				}
				if got, err := ask(t, c.leader()); err != nil || got != 15 {
					t.Errorf("at last %d are pending, error %v", got, err)
				}
			})
		})
	}
}
