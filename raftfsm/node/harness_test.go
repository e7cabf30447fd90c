package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cluster is several nodes on a network in memory, each with a directory on
// the real disk. It belongs in a synctest bubble, and closes itself at its end.
type cluster struct {
	t       testing.TB
	network kfake.VirtualNetwork
	members []member.Member
	tune    func(*Config)

	mu       sync.Mutex
	dirs     map[string]string
	nodes    map[string]*Node
	isolated map[string]bool
}

func newCluster(t testing.TB, size int, tune func(*Config)) *cluster {
	c := &cluster{t: t, tune: tune, dirs: map[string]string{}, nodes: map[string]*Node{}, isolated: map[string]bool{}}
	for i := range size {
		id := fmt.Sprintf("n%d", i+1)
		c.members = append(c.members, member.Member{ID: id, Raft: fmt.Sprintf("%s.test:%d", id, 7301+i), API: id + ".test:7401"})
		c.dirs[id] = t.TempDir()
	}
	t.Cleanup(c.closeAll)
	return c
}

func (c *cluster) config(id string) Config {
	port := 0
	for i, m := range c.members {
		if m.ID == id {
			port = 7301 + i
		}
	}
	cfg := Config{
		NodeID: id, DataDir: c.dirs[id], ClusterName: "test", Members: c.members, Bootstrap: true,
		ListenAddr: fmt.Sprintf("localhost:%d", port), Listen: c.network.Listen, Dial: c.dialFrom(id),
		AskMember: c.ask, Advise: advised, FlushBytes: 1 << 20, SegmentSize: 64 << 10, Logger: testLogger(c.t).With("at", id),
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	return cfg
}

// advised is what this package's users might say of an error.
func advised(err error) error { return fmt.Errorf("%w (advised)", err) }

// dialFrom resolves the members' host names and minds who is isolated.
func (c *cluster) dialFrom(id string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		to, ours := strings.CutSuffix(host, ".test")
		c.mu.Lock()
		apart := c.isolated[id] || c.isolated[to]
		c.mu.Unlock()
		if err != nil || !ours || apart {
			return nil, fmt.Errorf("dial %q: %w", addr, errors.Join(err, net.ErrClosed))
		}
		return c.network.DialContext(ctx, network, "localhost:"+port)
	}
}

// isolate cuts id off from the others, rejoin ends that.
func (c *cluster) isolate(id string) {
	c.mu.Lock()
	c.isolated[id] = true
	c.mu.Unlock()
	s := c.nodes[id].streams
	for range 2 { // the second time those whose dial was under way
		s.mu.Lock()
		for conn := range s.conns {
			conn.Close()
		}
		s.mu.Unlock()
		synctest.Wait()
	}
}

func (c *cluster) rejoin(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.isolated, id)
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("RAFTFSM_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ask stands in for the API: it reaches the nodes that are open.
func (c *cluster) ask(_ context.Context, m member.Member) (member.Standing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[m.ID]; n != nil {
		return n.Standing(), nil
	}
	return member.Standing{}, errors.New("connection refused")
}

func (c *cluster) open(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		n, err := Open(c.t.Context(), c.config(id))
		if err != nil {
			c.t.Fatalf("open %s: %v", id, err)
		}
		c.mu.Lock()
		c.nodes[id] = n
		c.mu.Unlock()
	}
}

func (c *cluster) close(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.mu.Lock()
		n := c.nodes[id]
		delete(c.nodes, id)
		c.mu.Unlock()
		if err := n.Close(); err != nil {
			c.t.Errorf("close %s: %v", id, err)
		}
	}
}

func (c *cluster) closeAll() {
	for _, m := range c.members {
		if c.nodes[m.ID] != nil {
			c.close(m.ID)
		}
	}
}

// wipe takes a closed node's disk away.
func (c *cluster) wipe(id string) { c.dirs[id] = c.t.TempDir() }

// foundWithout has the others found the cluster with id, which told them that it is
// empty, and is away since.
func (c *cluster) foundWithout(id string) {
	c.t.Helper()
	c.open(id)
	empty := c.nodes[id].Standing()
	c.close(id)
	c.tune = func(cfg *Config) {
		cfg.AskMember = func(ctx context.Context, m member.Member) (member.Standing, error) {
			if m.ID == id {
				return empty, nil
			}
			return c.ask(ctx, m)
		}
	}
	for _, m := range c.members {
		if m.ID != id {
			c.open(m.ID)
		}
	}
	c.leader()
	c.tune = nil
}

// replaceOne takes a member that does not lead away, has it replaced, and returns it.
// In a bubble only.
func (c *cluster) replaceOne(takeAway func(id string)) string {
	c.t.Helper()
	n := c.leader()
	away := otherThan(c, n)
	c.born(away)
	takeAway(away)
	time.Sleep(5 * time.Second)
	if err := n.Replace(c.t.Context(), away); err != nil {
		c.t.Fatal(err)
	}
	return away
}

// born waits until the node is in the group, which two others may have founded without it.
func (c *cluster) born(id string) {
	c.t.Helper()
	c.eventually(id+" in the group", func() bool { return c.nodes[id].Status().Leader != "" })
}

// leader waits until one of the open nodes leads and has passed a barrier.
func (c *cluster) leader() *Node {
	c.t.Helper()
	var found *Node
	c.eventually("a leader", func() bool {
		for _, n := range c.nodes {
			ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
			err := n.Barrier(ctx)
			cancel()
			if err == nil {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// eventually waits, in the bubble's time or on the real clock.
func (c *cluster) eventually(what string, ok func() bool) { eventually(c.t, what, ok) }

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("no %s within a minute", what)
		}
	}
}

// agree waits until all open nodes have applied the same, and compares them. What
// was proposed before may be applied while it looks: then it looks again.
func (c *cluster) agree() {
	c.t.Helper()
	digests := map[string][32]byte{}
	c.eventually("equal applied index", func() bool {
		before := c.applied()
		if len(before) > 1 {
			return false
		}
		for id, n := range c.nodes {
			digests[id] = digest(c.t, n.store)
		}
		return maps.Equal(before, c.applied())
	})
	var want [32]byte
	for _, m := range c.members {
		n := c.nodes[m.ID]
		if n == nil {
			continue
		}
		if err := n.store.Check(); err != nil {
			c.t.Errorf("%s: %v", m.ID, err)
		}
		if want == ([32]byte{}) {
			want = digests[m.ID]
		}
		if digests[m.ID] != want {
			c.t.Errorf("%s: state differs from that of the others", m.ID)
		}
	}
}

// applied is how far the open nodes have come.
func (c *cluster) applied() map[uint64]bool {
	at := map[uint64]bool{}
	for _, n := range c.nodes {
		at[n.store.State().AppliedIndex] = true
	}
	return at
}

func digest(t testing.TB, s *storage.Store) [32]byte {
	t.Helper()
	d, err := s.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A load proposes batches through whichever node leads.
type load struct {
	next int64
	id   [16]byte
}

func must(t testing.TB, n *Node, cmd raftfsm.Command) raftfsm.Result {
	t.Helper()
	res, err := n.Propose(t.Context(), cmd).Wait(t.Context())
	if err != nil {
		t.Fatalf("propose %T: %v", cmd, err)
	}
	return res
}

func startLoad(t testing.TB, n *Node) *load {
	l := &load{id: topicID}
	must(t, n, raftfsm.SetPositions{Time: 1, Surveyed: true, Sets: []raftfsm.PositionSet{
		{Position: storage.Position{Topic: "a.delay", TopicID: l.id, Next: 0, Epoch: -1}, From: raftfsm.FromAbsent}}})
	return l
}

// batch is the next Ingest of count messages with bodies of size bytes.
func (l *load) batch(count, size int) raftfsm.Ingest {
	part := raftfsm.Part{TopicID: l.id, Topic: "a.delay", From: l.next, Next: l.next + int64(count), Epoch: -1}
	for i := range count {
		at := l.next + int64(i)
		body := make([]byte, size)
		copy(body, fmt.Sprint(at))
		part.Entries = append(part.Entries, storage.Entry{Due: 1_000_000 + at*7919%86_400_000, Target: "a", Body: body})
	}
	l.next = part.Next
	return raftfsm.Ingest{Time: l.next, Parts: []raftfsm.Part{part}}
}

var topicID = [16]byte{0xde, 0xad, 1}

func killed(first, last uint64) []storage.SeqRun { return []storage.SeqRun{{First: first, Last: last}} }
