package brokertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
)

// What was claimed by a wrong time stays claimed: what is accepted later and due before that time comes when it is due, and
// cannot be cancelled.
func TestClock_thatWasBelievedStaysClaimed(t *testing.T) {
	onClocks(t, "nodes=1", func(c clockTest) {
		c.startAll()
		c.set(c.nodes[0], 100*time.Hour)
		time.Sleep(30 * time.Second)
		c.produceSome("count=1", "deliver-after=1s")
		time.Sleep(10 * time.Second)
		c.set(c.nodes[0], -100*time.Hour)
		time.Sleep(time.Minute)
		c.produceSome("count=1", "deliver-after=2h", "deliver-id=a")
		time.Sleep(time.Second)
		synctest.Wait() // the message is accepted
		c.wantProblem(c.nodes[0], "what is due before then cannot be cancelled, changed or replaced")
		_, err := c.leader().broker.Orders().Cancel(c.t.Context(), "orders.delay", "a", order.Condition{})
		if problem, _ := err.(*client.Problem); problem == nil || problem.Code != client.CodeTooLate {
			t.Errorf("cancelled: %v", err)
		}
		if got := c.arrived(); got != 1 {
			t.Errorf("%d messages delivered before they were due", got)
		}
		time.Sleep(2 * time.Hour)
		if got := c.arrived(); got != 2 {
			t.Errorf("%d messages delivered, want both", got)
		}
	})
}

// Nothing becomes due while firing is stopped, so nothing is to be done for it either.
func TestClock_thatStandsStillKeepsNobodyBusy(t *testing.T) {
	onClocks(t, "nodes=1", func(c clockTest) {
		c.startAll()
		c.produceSome("count=1000", "deliver-after=5s", "spread=1s")
		time.Sleep(5*time.Second + 300*time.Millisecond + 990*time.Microsecond)
		c.set(c.nodes[0], time.Hour)
		before := c.nodes[0].clock.timesRead()
		time.Sleep(5 * time.Second)
		if reads := c.nodes[0].clock.timesRead() - before; reads > 5000 {
			t.Errorf("the clock was read %d times in five seconds in which it stood still", reads)
		}
	})
}
