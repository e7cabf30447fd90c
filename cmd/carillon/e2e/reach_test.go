package e2e

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A way is a way to a broker that can be cut: Kafka listens at its own address for it
// and tells clients that come by it to come to Addr, where this process passes on.
type way struct {
	Name        string
	Kafka, Addr string
	listener    net.Listener

	mu   sync.Mutex
	open map[net.Conn]struct{} // nil: cut
}

func newWay(t testing.TB, name string) *way {
	t.Helper()
	addrs := freeAddrs(t, 2)
	listener, err := net.Listen("tcp", addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Name: name, Kafka: addrs[0], Addr: addrs[1], listener: listener, open: make(map[net.Conn]struct{})}
	t.Cleanup(w.cut)
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go w.pass(from)
		}
	}()
	return w
}

func (w *way) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", w.Kafka)
	if err != nil || !w.keep(from, to) {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from)
		to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// keep notes connections that cut has to close; it reports false when the way is cut.
func (w *way) keep(connections ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range connections {
		if w.open == nil {
			c.Close()
			continue
		}
		w.open[c] = struct{}{}
	}
	return w.open != nil
}

// cut breaks all connections and refuses new ones.
func (w *way) cut() {
	w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.Close()
	}
	w.open = nil
}

// Each node has its own way to Kafka; the leader loses its own.
func TestLeaderCutOffFromKafka_givesLeadershipToOneThatIsNot(t *testing.T) {
	const messages = 5000
	ways := newWays(t)
	k := startKafkaBehind(t, ways)
	k.create(6, delayTopic, targetTopic)
	c := startCarillonBehind(t, ways)
	c.born = c.term()
	l := newLedger()
	l.consume(k, targetTopic)
	l.load(k, 0, messages, 500, 5*time.Second)
	await(t, patience, "a fifth is delivered", func() bool { return l.delivered() >= messages/5 })

	cutOffLeader(t, c, ways, "Kafka did not answer ")
	l.settle(k, c, targetTopic, messages)
	// The cut leaves records without an answer, and the end of the term may as well.
	l.verify(t, messages, 2, c.elections())
}

// The leader loses its way to the broker that leads the target, and keeps the one to that of the delay topic.
func TestLeaderCutOffFromTheTargets_givesLeadershipToOneThatIsNot(t *testing.T) {
	const messages = 5000
	ways := [][]*way{newWays(t), newWays(t)}
	k := startKafkaBehind(t, ways...)
	k.place(delayTopic, 1, 2)
	k.place(targetTopic, 2, 1)
	c := startCarillonBehind(t, ways[0])
	c.born = c.term()
	l := newLedger()
	l.consume(k, targetTopic)
	l.load(k, 0, messages, 500, 5*time.Second)
	await(t, patience, "a fifth is delivered", func() bool { return l.delivered() >= messages/5 })

	cutOffLeader(t, c, ways[1], "did not answer ")
	l.settle(k, c, targetTopic, messages)
	l.verify(t, messages, 2, c.elections())
}

// newWays returns a way for each of three nodes.
func newWays(t testing.TB) []*way {
	return []*way{newWay(t, "ONE"), newWay(t, "TWO"), newWay(t, "THREE")}
}

// startCarillonBehind starts a node for each way, by which it comes to Kafka.
func startCarillonBehind(t testing.TB, ways []*way) *carillonCluster {
	t.Helper()
	c := newCarillon(t, nil, dirs(t, len(ways))...)
	for i, n := range c.nodes {
		n.Brokers = []string{ways[i].Addr}
	}
	c.configure()
	c.start()
	return c
}

// cutOffLeader cuts the leader's way, and returns when another node leads. The old leader's problems say why.
func cutOffLeader(t *testing.T, c *carillonCluster, ways []*way, why string) {
	t.Helper()
	first := c.leader()
	for i, n := range c.nodes {
		if n == first {
			ways[i].cut()
		}
	}
	begin := time.Now()
	await(t, patience, "another node leads", func() bool {
		s, err := first.status()
		return err == nil && s.Leader != "" && s.Leader != first.ID
	})
	t.Logf("another node led %v after the cut", time.Since(begin).Round(100*time.Millisecond))
	s, err := first.status()
	if problems := strings.Join(s.Problems, "\n"); err != nil || !strings.Contains(problems, why+first.ID) {
		t.Errorf("problems of the old leader %q (%v) do not say why it gave leadership away", problems, err)
	}
}
