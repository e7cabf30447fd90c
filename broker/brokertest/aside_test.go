package brokertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
)

// A dead-letter topic refuses what is large. Whoever leads tells by a list which dead letters are aside for that, until the topic takes
// them.
func TestAside_isListedUntilTheTopicTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3"}))
		defer c.stop()
		p := newPlayer(c, NewReport())
		c.must(p.createTopic("orders.delay", arguments{}))
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		letters := c.config.DeadLetter.Topic
		c.await(time.Minute, "a dead-letter topic", func() bool { return c.kafka.TopicInfo(letters) != nil })
		c.must(p.limitTopic(letters, "2000"))
		c.must(p.produce("orders.delay", parseArguments([]string{"count=3", "value=no-time-%", "bytes=4000"})))
		c.must(p.produce("orders.delay", parseArguments([]string{"count=2", "value=small-%"})))
		told := func(state string) (listed int) {
			page, err := c.leader().broker.Queries().List(t.Context(), query.ListRequest{Filter: client.Filter{States: []string{state}}, Limit: 100})
			if err != nil {
				return -1
			}
			for _, m := range page.Messages {
				if m.State != state || m.Target != letters || m.Topic != "orders.delay" {
					t.Errorf("listed as %s: %+v", state, m)
				}
			}
			count, err := c.leader().broker.Queries().Count(t.Context(), client.Filter{States: []string{state}})
			if err != nil || count.Count != uint64(len(page.Messages)) {
				return -1 // asked in between
			}
			return len(page.Messages)
		}
		await := func(aside int) {
			t.Helper()
			c.await(time.Minute, "dead letters aside", func() bool { return told(client.StateAside) == aside && told(client.StateClaimed) == 0 })
		}
		await(3)
		leader := c.leader()
		leader.kill()
		await(3)
		leader.start()
		c.must(p.unlimitTopic(letters))
		await(0)
	})
}
