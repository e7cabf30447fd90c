package brokertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm/member"
	raftnode "github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A node is one member: its data directory, which outlives it, and, while it runs,
// its Raft node and broker.
type node struct {
	cluster *Cluster
	member  config.Member
	clock   *clock
	files   *logDisk
	own     config.Config     // that it runs with, or ran with last
	config  map[string]string // by key, where this node's differs from its next start on
	disk    int               // counts up when the disk is replaced
	program storage.Level     // what it understands from its next start on; 0: all
	everOld bool              // a program has run here that tells nobody its clock
	frozen  atomic.Bool
	killed  atomic.Bool                     // what it still does never was
	again   atomic.Bool                     // it has ended, and said that it is to be started again
	filled  atomic.Bool                     // it has ended, since its disk is full
	leads   atomic.Bool                     // its term runs, as far as its log says
	life    atomic.Pointer[context.Context] // ends when the node is being ended
	held    map[string]bool                 // targets that were parked when it last applied a claim as the leader

	metrics *prometheus.Registry // of the broker that runs, or ran last

	alive  atomic.Pointer[raftnode.Node] // nil while the node is down; other nodes ask it
	broker *broker.Broker
	cancel context.CancelFunc
	done   chan struct{} // closed when the broker has returned
}

func newNode(c *Cluster, m config.Member) *node {
	return &node{cluster: c, member: m, clock: newClock(), files: newLogDisk(), config: make(map[string]string)}
}

// start opens the node and lets it run.
func (n *node) start() {
	c := n.cluster
	c.t.Helper()
	if n.running() {
		c.t.Fatalf("node %s runs already", n.member.ID)
	}
	c.observer.started(n.member.ID)
	own := c.config
	own.Node = config.Node{ID: n.member.ID, DataDir: c.dataDir(n.member.ID, n.disk)}
	own = own.Resolved()
	if len(n.config) > 0 {
		own = n.configured(own)
	}
	n.files.restart()
	n.killed.Store(false)
	n.again.Store(false)
	n.filled.Store(false)
	n.own = own
	n.everOld = n.everOld || n.program == storage.LevelOne
	log := c.log.With("node", n.member.ID)
	kafkaLog := log // whose own debugging costs
	if c.raise != nil {
		log = slog.New(observedLog{Handler: log.Handler(), node: n})
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.life.Store(&ctx)
	n.leads.Store(false)
	opened, err := raftnode.Open(ctx, raftnode.Config{
		NodeID:      n.member.ID,
		DataDir:     own.Node.DataDir,
		ClusterName: own.Cluster.Name,
		Members:     c.members(),
		Bootstrap:   true,
		Heartbeat:   own.Raft.Heartbeat,
		Listen:      c.network.listen(n.member.ID),
		Dial:        c.network.dial(n.member.ID),
		AskMember:   c.ask(n),
		FlushBytes:  c.flushBytes,
		SegmentSize: c.segment,
		MergeWidth:  c.mergeWidth,
		Understands: n.program,
		Applied:     n.applied,
		LogFiles:    n.files,
		FreeSpace:   n.files.free,
		FreeMemory:  func() {}, // all nodes are in one process
		Logger:      log,
	})
	if errors.Is(err, syscall.ENOSPC) && !n.files.isWell() {
		c.t.Logf("%s does not start while its disk is full: %v", n.member.ID, err)
		cancel()
		c.observer.felled("kill", n.member.ID)
		return
	}
	if err != nil {
		c.t.Fatalf("storage: %s does not start again from what it has: %v", n.member.ID, err)
	}
	letters, err := kafka.NewLetters(n.kafka(kafkaLog))
	if err != nil {
		c.t.Fatal(err)
	}
	n.cancel, n.done = cancel, make(chan struct{})
	n.metrics = prometheus.NewRegistry()
	n.broker = broker.New(broker.Options{
		Config:  own,
		Node:    opened,
		Source:  func() (ingest.Source, error) { return kafka.NewSource(n.kafka(kafkaLog), own.IsDelayTopic) },
		Sink:    func() (broker.Sink, error) { return n.sink(kafkaLog) },
		Survey:  n.kafka(kafkaLog).Survey,
		Letters: letters,
		Metrics: broker.NewMetrics(n.metrics),
		Now:     n.clock.now,
		Logger:  log,
		Limits:  c.limits,

		AskReach:      c.askReach(n),
		AskClock:      c.askClock(n),
		CompareEvery:  max(10*time.Second, 10*own.Raft.Heartbeat),
		DiscoverEvery: min(3*own.Raft.Heartbeat, time.Minute),
		Ahead:         func(s schedule.Store) schedule.Store { return slowStore{s, n} },
	})
	n.alive.Store(opened) // last: others that see it ask its broker
	go func() {
		defer close(n.done)
		switch err := n.broker.Run(ctx); {
		case err == nil:
		case strings.HasSuffix(err.Error(), "start the node again"):
			n.again.Store(true)
		case errors.Is(err, storage.ErrDiskFull) && n.files.isFull():
			n.filled.Store(true)
		case errors.Is(err, storage.ErrDiskFull) && n.files.wasFull():
			n.again.Store(true)
		default:
			c.t.Errorf("node %s: %v", n.member.ID, err)
		}
	}()
}

// configured returns the configuration with what is different at this node.
func (n *node) configured(c config.Config) config.Config {
	layers := config.Layers{Flags: make(map[string]string)}
	for _, key := range config.Keys() {
		layers.Flags[key.Name] = key.Text(c)
		if text, ok := n.config[key.Name]; ok {
			layers.Flags[key.Name] = text
		}
	}
	settings, err := config.Load(config.Keys(), layers)
	n.cluster.must(err)
	return settings.Config
}

func (n *node) sink(log *slog.Logger) (broker.Sink, error) {
	if n.cluster.noSink.Load() {
		return nil, errNoSink
	}
	sink, err := kafka.NewSink(n.kafka(log))
	if err != nil || n.cluster.raise == nil {
		return sink, err
	}
	return observedSink{sink, n}, nil
}

func (n *node) kafka(log *slog.Logger) reach.Config {
	return reach.Config{
		Kafka:        n.cluster.config.Kafka,
		ClientID:     n.member.ID,
		Logger:       log,
		Dial:         n.cluster.observer.traffic.metered(n.cluster.network.dial(n.member.ID)),
		FetchMaxWait: n.cluster.fetchWait,
	}
}

// kill takes the node away in the middle of whatever it does: nothing that it still tries
// reaches anybody, its disk included, which is put back to what it was. A goroutine that waits
// for an event to be dealt with was then where it waits. One that is being stopped can be killed.
func (n *node) kill() {
	if !n.running() || n.killed.Load() {
		return
	}
	n.cluster.observer.felled("kill", n.member.ID)
	n.cluster.network.setHost(cut, n.member.ID)
	synctest.Wait() // nobody writes now
	dir := n.cluster.dataDir(n.member.ID, n.disk)
	n.killed.Store(true)
	image := dir + ".killed"
	n.cluster.must(copySparse(image, dir))
	n.cluster.must(n.files.tear(image, dir))
	if n.frozen.CompareAndSwap(true, false) {
		n.clock.thaw() // so that it can end
		n.cluster.observer.ended("frozen " + n.member.ID)
	}
	n.end()
	n.cluster.must(os.RemoveAll(dir))
	n.cluster.must(os.Rename(image, dir))
	n.cluster.network.setHost(open, n.member.ID)
}

// supervise starts the node again if it has ended and said so, as whoever runs it would. One whose disk is full, and
// that holds as much in memory as it may, has ended for good until the script starts it.
func (n *node) supervise() {
	if n.filled.Swap(false) && n.running() {
		n.cluster.t.Logf("%s has ended, since its disk is full", n.member.ID)
		n.cluster.observer.felled("kill", n.member.ID)
		n.end()
	}
	if n.again.Swap(false) && n.running() {
		n.cluster.t.Logf("%s is started again", n.member.ID)
		n.stop()
		n.start()
	}
}

// stop ends the node in an orderly way. One that is frozen hears of it when it thaws: now.
func (n *node) stop() {
	if !n.running() || n.killed.Load() {
		return
	}
	n.cluster.observer.felled("stop", n.member.ID)
	n.thaw()
	n.end()
}

// end has the node end. What becomes due while it does may end it as well, and start it again.
func (n *node) end() {
	raft := n.raft()
	n.cancel()
	n.cluster.waitFor(n.done)
	n.cluster.observer.termOver(n.member.ID) // one that was about to begin
	if !n.alive.CompareAndSwap(raft, nil) {
		return
	}
	n.cluster.observer.closed(raft.Store())
	if err := raft.Close(); err != nil {
		n.cluster.t.Errorf("close node %s: %v", n.member.ID, err)
	}
}

// ending returns a channel that is closed when the node is not running, or is being ended.
func (n *node) ending() <-chan struct{} { return (*n.life.Load()).Done() }

// install restarts the node with a program that understands up to the level.
func (n *node) install(program storage.Level) {
	n.stop()
	n.program = program
	n.start()
}

// freeze stops the node's clock and silences its links, as SIGSTOP would; thaw lets
// everything that waited happen at once. One that is being ended is not frozen: who ends it waits.
func (n *node) freeze() (did bool) {
	if !n.running() || (*n.life.Load()).Err() != nil || n.killed.Load() || !n.frozen.CompareAndSwap(false, true) {
		return false
	}
	n.cluster.observer.froze(n.member.ID)
	n.clock.freeze()
	n.cluster.network.setHost(silent, n.member.ID)
	return true
}

func (n *node) thaw() {
	if n.frozen.CompareAndSwap(true, false) {
		n.cluster.network.setHost(open, n.member.ID)
		n.clock.thaw()
		n.cluster.observer.ended("frozen " + n.member.ID)
	}
}

// raft returns the node's part in Raft, nil while it is down.
func (n *node) raft() *raftnode.Node { return n.alive.Load() }

func (n *node) running() bool   { return n.raft() != nil }
func (n *node) reachable() bool { return n.running() && !n.frozen.Load() }

// reached returns the node that another one asks, by its HTTP API, unless that does not answer.
func (c *Cluster) reached(from *node, m member.Member) (*node, *raftnode.Node, error) {
	state, _ := c.network.dialing(link{from.member.ID, m.ID})
	other := c.node(m.ID)
	raft := other.raft()
	if state != open || raft == nil || !other.reachable() {
		return nil, nil, fmt.Errorf("ask %s: %w", m.ID, errCut)
	}
	return other, raft, nil
}

// askReach is how a node asks another whether Kafka answers it.
func (c *Cluster) askReach(from *node) func(context.Context, member.Member) (broker.Reached, error) {
	return func(ctx context.Context, m member.Member) (broker.Reached, error) {
		other, _, err := c.reached(from, m)
		if err != nil {
			return broker.Reached{}, err
		}
		return other.broker.ReachKafka(ctx)
	}
}

// ask is how a node of a new cluster asks the others.
func (c *Cluster) ask(from *node) func(context.Context, member.Member) (member.Standing, error) {
	return func(_ context.Context, m member.Member) (member.Standing, error) {
		_, raft, err := c.reached(from, m)
		if err != nil {
			return member.Standing{}, err
		}
		return raft.Standing(), nil
	}
}

// askClock is how a node asks another for its clock. Programs of level one have no answer.
func (c *Cluster) askClock(from *node) func(context.Context, member.Member) (broker.ClockReading, error) {
	return func(_ context.Context, m member.Member) (broker.ClockReading, error) {
		if c.noClocks.Load() {
			return broker.ClockReading{}, errExpired
		}
		other, raft, err := c.reached(from, m)
		if err != nil {
			return broker.ClockReading{}, err
		}
		if standing := raft.Standing(); standing.Level() == storage.LevelOne {
			return broker.ClockReading{}, fmt.Errorf("ask %s: its program does not tell", m.ID)
		}
		return other.broker.Clock(), nil
	}
}
