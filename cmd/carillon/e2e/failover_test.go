package e2e

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	delayTopic  = "orders.delay"
	targetTopic = "orders"
)

// dirs returns n empty folders.
func dirs(t testing.TB, n int) []string {
	var dirs []string
	for range n {
		dirs = append(dirs, t.TempDir())
	}
	return dirs
}

// newStage starts real Kafka, a node of Carillon per data folder, and a ledger of the target topic.
func newStage(t *testing.T, brokers int, data ...string) (*kafkaCluster, *carillonCluster, *ledger) {
	t.Helper()
	k := startKafka(t, freeAddrs(t, brokers)...)
	k.create(6, delayTopic, targetTopic)
	c := startCarillon(t, k.addrs(), data...)
	l := newLedger()
	l.consume(k, targetTopic)
	return k, c, l
}

// load schedules n messages, numbered from first, at a steady rate per second, each due after a
// random part of the horizon. It closes the channel when all are handed to the client.
func (l *ledger) load(k *kafkaCluster, first, n, rate int, horizon time.Duration) <-chan struct{} {
	producer := k.client()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for number := first; number < first+n; <-tick.C {
			for range min(rate/100, first+n-number) {
				l.schedule(producer, delayTopic, number, time.Now().Add(rand.N(horizon)))
				number++
			}
		}
	}()
	return done
}

func TestLeaderKilledUnderLoad_losesNothing(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		t.Run(strconv.Itoa(brokers)+" Kafka brokers", func(t *testing.T) {
			underLoad(t, brokers, 4, func(c *carillonCluster) {
				c.leader().process.kill()
				c.leader()
				c.start()
			})
		})
	}
}

func TestLeaderStoppedUnderLoad_handsOver(t *testing.T) {
	underLoad(t, 1, 2, func(c *carillonCluster) {
		c.leader().process.stop()
		c.start()
	})
}

// A frozen leader thaws while another one leads, and finishes what it was about to do.
func TestLeaderFrozenUnderLoad_thawsIntoAFollower(t *testing.T) {
	underLoad(t, 1, 2, func(c *carillonCluster) {
		frozen := c.leader()
		frozen.process.send(syscall.SIGSTOP)
		c.leader()
		frozen.process.send(syscall.SIGCONT)
		await(t, patience, "the thawed node is ready", frozen.ready)
	})
}

// underLoad runs 1,000 messages a second through three nodes, due within seconds, strikes so many
// times while they are delivered, and verifies what came out. The first strike comes when Kafka has
// warmed up: a JVM of a few seconds takes so long to answer that most of what is due is in flight.
func underLoad(t *testing.T, brokers, strikes int, strike func(*carillonCluster)) {
	messages := 4000 * (strikes + 2)
	k, c, l := newStage(t, brokers, dirs(t, 3)...)
	l.load(k, 0, messages, 1000, 5*time.Second)
	var struck []struct{ begin, end time.Time }
	for n := range strikes {
		share := (n + 2) * messages / (strikes + 3)
		await(t, 2*patience, strconv.Itoa(share)+" are delivered", func() bool { return l.delivered() >= share })
		begin := time.Now()
		strike(c)
		struck = append(struck, struct{ begin, end time.Time }{begin, time.Now()})
	}
	l.settle(k, c, targetTopic, messages)
	l.verify(t, messages, strikes, c.elections())
	for n, at := range struck {
		t.Logf("strike %d of %d: nothing was delivered for %v", n+1, strikes, l.pause(at.begin, at.end))
	}
}

// Here the disks of the nodes are the only place where the messages still are.
func TestAllNodesKilled_deliverFromTheirDisksInOrder(t *testing.T) {
	const messages = 20_000
	k, c, l := newStage(t, 1, dirs(t, 3)...)
	producer := k.client()
	soon := time.Now().Add(15 * time.Second)
	for number := range messages {
		l.schedule(producer, delayTopic, number, soon.Add(rand.N(10*time.Second)))
	}
	c.awaitPending(patience, messages)
	k.empty(delayTopic)
	c.kill()
	c.start()
	await(t, 2*patience, "half are delivered", func() bool { return l.delivered() >= messages/2 })
	c.kill()
	c.start()
	l.settle(k, c, targetTopic, messages)
	l.verify(t, messages, 2, c.elections())
	if l.disordered > 0 {
		t.Errorf("%d messages came after one that was due later", l.disordered)
	}
}

func TestKafkaStopped_deliversWhenItIsBack(t *testing.T) {
	const messages, outage = 20_000, 20 * time.Second
	k, c, l := newStage(t, 1, dirs(t, 3)...)
	l.load(k, 0, messages, 1000, 10*time.Second)
	await(t, patience, "a quarter is delivered", func() bool { return l.delivered() >= messages/4 })
	k.kill()
	<-time.After(outage) // the length of the outage is what is tested
	k.start()
	l.settle(k, c, targetTopic, messages)
	l.verify(t, messages, 1, c.elections())
}

// empty deletes all records of a topic up to now.
func (k *kafkaCluster) empty(topic string) {
	k.t.Helper()
	admin := kadm.NewClient(k.client())
	ends, err := admin.ListEndOffsets(k.t.Context(), topic)
	if err == nil {
		_, err = admin.DeleteRecords(k.t.Context(), ends.Offsets())
	}
	if err != nil {
		k.t.Fatalf("delete the records of %s: %v", topic, err)
	}
}
