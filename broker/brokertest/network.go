package brokertest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/wire"
)

// A network joins hosts in memory. What goes from one host to another can be cut (connections
// that were dialed that way break, dialing is refused) or silenced (nothing arrives, nothing
// breaks: what a black hole or a frozen process looks like from outside). A host that is down
// or frozen has all its links cut or silenced, whatever else is done to them.
type network struct {
	stack *wire.Network

	mu      sync.Mutex
	owners  map[string]string // port to host
	links   map[link]linkState
	hosts   map[string]linkState
	changed chan struct{} // closed and replaced whenever a link changes
	last    time.Time     // when one did
}

// A link is one direction between two hosts.
type link struct{ from, to string }

func (l link) back() link { return link{l.to, l.from} }

// A linkState is how bad a link is: the worst of several counts.
type linkState uint8

const (
	open linkState = iota
	silent
	cut
)

func newNetwork() *network {
	return &network{stack: wire.NewNetwork(), owners: make(map[string]string), links: make(map[link]linkState), hosts: make(map[string]linkState), changed: make(chan struct{})}
}

// set changes the links between a host and the others, both ways.
func (n *network) set(state linkState, host string, others ...string) {
	n.change(func() {
		for _, other := range others {
			if other != host {
				n.links[link{host, other}], n.links[link{other, host}] = state, state
			}
		}
	})
}

// setOneway changes what goes from the others to a host.
func (n *network) setOneway(state linkState, host string, others ...string) {
	n.change(func() {
		for _, other := range others {
			if other != host {
				n.links[link{other, host}] = state
			}
		}
	})
}

// setHost changes all links of a host, until it is open again.
func (n *network) setHost(state linkState, host string) {
	n.change(func() { n.hosts[host] = state })
}

func (n *network) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed, n.last = make(chan struct{}), time.Now()
}

// changedAt returns when a link has changed last.
func (n *network) changedAt() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

func (n *network) state(l link) (linkState, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stateOf(l), n.changed
}

func (n *network) stateOf(l link) linkState { return max(n.links[l], n.hosts[l.from], n.hosts[l.to]) }

// dialing returns the state for one who dials: an answer must come back, too.
func (n *network) dialing(l link) (linkState, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	state := n.stateOf(l)
	if state == open && n.stateOf(l.back()) == silent {
		state = silent
	}
	return state, n.changed
}

// reading returns the state for the one who dialed and now reads: what comes back can be
// silenced, and a connection breaks with the way on which it was dialed.
func (n *network) reading(l link) (linkState, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	state := n.stateOf(l)
	if state != cut {
		state = min(n.stateOf(l.back()), silent)
	}
	return state, n.changed
}

// whole reports whether all links are open.
func (n *network) whole() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, state := range n.links {
		if state != open {
			return false
		}
	}
	for _, state := range n.hosts {
		if state != open {
			return false
		}
	}
	return true
}

// hindered returns the nodes that bad links harm: whoever does not reach all of Kafka, the leader if it does not reach a
// majority, and of the others as few as have all other bad links between nodes. What hosts themselves have is left out.
func (n *network) hindered(nodes, kafka []string, leader string) []string {
	isBad := n.badLinks()
	var out []string
	apart := make(map[string][]string) // from which other nodes
	for i, node := range nodes {
		if slices.ContainsFunc(kafka, func(host string) bool { return isBad(node, host) }) {
			out = append(out, node)
		}
		for _, other := range nodes[:i] {
			if isBad(node, other) {
				apart[node], apart[other] = append(apart[node], other), append(apart[other], node)
			}
		}
	}
	harmed := func(node string) {
		if !slices.Contains(out, node) {
			out = append(out, node)
		}
		for _, other := range apart[node] {
			apart[other] = slices.DeleteFunc(apart[other], func(name string) bool { return name == node })
		}
		delete(apart, node)
	}
	if 2*len(apart[leader]) >= len(nodes) {
		harmed(leader)
	}
	for {
		worst := ""
		for _, node := range nodes {
			if node != leader && len(apart[node]) > len(apart[worst]) {
				worst = node
			}
		}
		if worst == "" {
			return out
		}
		harmed(worst)
	}
}

// badLinks returns what tells whether a link between two hosts is bad now, in one direction at least.
func (n *network) badLinks() func(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := maps.Clone(n.links)
	return func(a, b string) bool { return links[link{a, b}] != open || links[link{b, a}] != open }
}

// apart returns from how many of the others the host gets no answer, if all other links are open; else 0.
func (n *network) apart(host string, others []string) (apart int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	between := func(l link) bool {
		return l.from == host && slices.Contains(others, l.to) || l.to == host && slices.Contains(others, l.from)
	}
	for l, state := range n.links {
		if state != open && !between(l) {
			return 0
		}
	}
	for _, state := range n.hosts {
		if state != open {
			return 0
		}
	}
	for _, other := range others {
		if l := (link{host, other}); n.stateOf(l) != open || n.stateOf(l.back()) != open {
			apart++
		}
	}
	return apart
}

// listen returns a listen function for the host; who dials the port reaches it.
func (n *network) listen(host string) func(network, addr string) (net.Listener, error) {
	return func(nw, addr string) (net.Listener, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", addr, err)
		}
		n.mu.Lock()
		n.owners[port] = host
		n.mu.Unlock()
		return n.stack.Listen(nw, addr)
	}
}

// listenKafka listens for the broker that has the port.
func (n *network) listenKafka(nw, addr string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	host := kafkaHost
	if number, err := strconv.Atoi(port); err == nil && number > kafkaPort {
		host += strconv.Itoa(number - kafkaPort + 1)
	}
	return n.listen(host)(nw, addr)
}

// dial returns a dial function for the host.
func (n *network) dial(host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, nw, addr string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", addr, err)
		}
		n.mu.Lock()
		l := link{host, n.owners[port]}
		n.mu.Unlock()
		for {
			state, changed := n.dialing(l)
			switch state {
			case cut:
				return nil, &net.OpError{Op: "dial", Net: nw, Err: errCut}
			case open:
				c, err := n.stack.DialContext(ctx, nw, addr)
				if err != nil {
					return nil, &net.OpError{Op: "dial", Net: nw, Err: err}
				}
				return &conn{Conn: c, network: n, link: l, closed: make(chan struct{}), moved: make(chan struct{})}, nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, &net.OpError{Op: "dial", Net: nw, Err: ctx.Err()}
			}
		}
	}
}

// A conn is the dialing side of a connection; both directions go through it.
type conn struct {
	net.Conn
	network *network
	link    link // from the one who dialed
	once    sync.Once
	closed  chan struct{}

	held []byte // came while the link was silent, and the deadline passed before it spoke; the reader's alone

	mu                  sync.Mutex
	readUntil, writeEnd time.Time
	moved               chan struct{} // is closed when a deadline moves
}

// Read returns what has come over the link. What was on the wire when it fell silent arrives later, be it for another Read than
// the one that waited for it: bytes beside an error would be taken for an answer.
func (c *conn) Read(b []byte) (int, error) {
	n := len(c.held)
	if n == 0 {
		var err error
		if n, err = c.Conn.Read(b); err != nil {
			return n, err
		}
		c.held = append(c.held, b[:n]...)
	}
	if err := c.pass(c.network.reading, &c.readUntil); err != nil {
		return 0, err
	}
	n = copy(b, c.held)
	c.held = c.held[n:]
	return n, nil
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(c.network.state, &c.writeEnd); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// pass waits while the way is silent, until its deadline.
func (c *conn) pass(way func(link) (linkState, <-chan struct{}), until *time.Time) error {
	for {
		state, changed := way(c.link)
		if state == open {
			return nil
		}
		if state == cut {
			c.Close()
			return net.ErrClosed
		}
		if err := c.await(changed, until); err != nil {
			return err
		}
	}
}

// await waits until the network has changed, or a deadline of the connection.
func (c *conn) await(changed <-chan struct{}, until *time.Time) error {
	c.mu.Lock()
	at, moved := *until, c.moved
	c.mu.Unlock()
	var expired <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-changed:
		return nil
	case <-moved:
		return nil
	case <-c.closed:
		return net.ErrClosed
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

func (c *conn) SetDeadline(t time.Time) error {
	c.moveDeadlines(t, &c.readUntil, &c.writeEnd)
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.moveDeadlines(t, &c.readUntil)
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.moveDeadlines(t, &c.writeEnd)
	return c.Conn.SetWriteDeadline(t)
}

// moveDeadlines is heard by whoever waits for a silent link, as by one that waits for data.
func (c *conn) moveDeadlines(to time.Time, deadlines ...*time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, deadline := range deadlines {
		*deadline = to
	}
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
