package e2e

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// All three nodes are on one disk, so the power cut hits them at the same moment, under load. What
// was accepted before is no longer in Kafka: only synced bytes can bring it back.
func TestPowerLoss_whatWasAcceptedIsDelivered(t *testing.T) {
	const accepted, load = 10_000, 10_000
	d := newDisk(t, 2<<30)
	k, c, l := newStage(t, 1, d.subdirs("n1", "n2", "n3")...)
	producer := k.client()
	soon := time.Now().Add(20 * time.Second)
	for number := range accepted {
		l.schedule(producer, delayTopic, number, soon.Add(rand.N(10*time.Second)))
	}
	c.awaitPending(patience, accepted)
	k.empty(delayTopic)

	loaded := l.load(k, accepted, load, 1000, time.Second)
	await(t, patience, "half of the load is delivered", func() bool { return l.delivered() >= load/2 })
	d.cutPower()
	c.kill()
	d.remount()
	c.start()
	<-loaded
	l.settle(k, c, targetTopic, accepted+load)
	const strikes = 2 // from the cut to the kill nothing that is delivered can be acknowledged
	l.verify(t, accepted+load, strikes, c.elections())
}

func TestDiskFull_stopsAcceptingUntilThereIsRoom(t *testing.T) {
	const accepted, more = 20_000, 40_000
	d := newDisk(t, 2<<30)
	k, c, l := newStage(t, 1, d.subdirs("n1")...)
	producer := k.client(kgo.MaxBufferedRecords(accepted + more))
	soon := time.Now().Add(20 * time.Second)
	schedule := func(first, n int) {
		for number := first; number < first+n; number++ {
			l.schedule(producer, delayTopic, number, soon.Add(rand.N(5*time.Second)))
		}
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	schedule(0, accepted)
	node := c.nodes[0]
	// Counted, since so many are never pending where the first is due before the last is accepted.
	await(t, patience, "the first messages are accepted", func() bool { return node.accepted() == accepted })
	free := d.fill(16 << 20)
	schedule(accepted, more)
	await(t, patience, "the node's status says that its disk is full", func() bool {
		s, err := node.status()
		return err == nil && strings.Contains(strings.Join(s.Problems, "; "), "node.data_dir")
	})
	t.Logf("%d were delivered before the disk was full", l.delivered())
	await(t, patience, "what was accepted is delivered meanwhile", func() bool { return l.deliveredBelow(accepted) == accepted })
	if n := l.delivered() - accepted; n > 0 {
		t.Errorf("%d messages were accepted while the disk was full", n)
	}
	if !node.process.running() {
		t.Fatal("the node has exited")
	}
	free()
	l.settle(k, c, targetTopic, accepted+more)
	l.verify(t, accepted+more, 0, c.elections())
}

// accepted returns how many messages the node has accepted since it was started, -1 if it does not say.
func (n *carillonNode) accepted() int {
	body, err := n.get("/metrics")
	if err != nil {
		return -1
	}
	_, value, _ := strings.Cut(string(body), "\ncarillon_accepted_total ")
	value, _, _ = strings.Cut(value, "\n")
	count, err := strconv.ParseFloat(value, 64) // a million is written 1e+06
	if err != nil {
		return -1
	}
	return int(count)
}
