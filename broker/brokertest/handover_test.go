package brokertest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Kafka takes connections and answers nothing. A leader that is told to end, whatever it was asking Kafka
// at that moment, has handed over within a second and has ended within three.
func TestHandOver_doesNotWaitForASilentKafka(t *testing.T) {
	for _, silence := range []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second} {
		t.Run(silence.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, parseArguments([]string{"nodes=3"}))
				defer c.stop()
				p := &player{Cluster: c, start: time.Now()}
				c.must(p.createTopic("orders.delay", arguments{}))
				c.must(p.createTopic("orders", arguments{}))
				c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
				time.Sleep(5 * time.Second)
				c.must(p.produce("orders.delay", parseArguments([]string{"count=600", "spread=60s", "deliver-after=1s"})))
				time.Sleep(5 * time.Second)
				old := c.leader()
				c.network.set(silent, old.member.ID, kafkaHost)
				time.Sleep(silence)
				begun := time.Now()
				old.cancel()
				for led := false; !led; {
					if time.Since(begun) > time.Second {
						t.Fatal("a second later nobody else leads")
					}
					time.Sleep(10 * time.Millisecond)
					for _, n := range c.nodes {
						led = led || n != old && n.broker.Leading()
					}
				}
				<-old.done
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("the end took %v", took)
				}
				c.network.set(open, old.member.ID, c.hosts()...)
				time.Sleep(20 * time.Second) // the calls to Kafka that were left to end by themselves have
			})
		})
	}
}
