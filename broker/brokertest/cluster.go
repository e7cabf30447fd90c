package brokertest

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The hosts of the network that are not nodes.
const (
	kafkaHost = "kafka" // the first broker; others are kafka2, kafka3, ...
	userHost  = "user"
)

const kafkaPort = 9092 // of the first broker; others follow

// checkGroups is how often Kafka looks for groups of consumers whose offsets have expired: a year,
// in milliseconds. There are no groups, and each look costs real time.
const checkGroups = "31536000000"

// A Cluster is a number of nodes and a Kafka in one bubble.
type Cluster struct {
	t       testing.TB
	network *network
	kafka   *kfake.Cluster
	gate    *kafkatest.Gate // between the network and Kafka
	brokers int             // of Kafka
	// kafkaDir is where Kafka keeps what it has; "": nowhere, it is gone when Kafka ends.
	kafkaDir string
	faults   *kafkaFaults
	nodes    []*node
	config   config.Config
	log      *slog.Logger
	// observer sees what the nodes log.
	observer *observer
	dir      string
	// flushBytes is small, so that flushes and merges happen in every longer script.
	flushBytes int64
	// segment is the size of the log's files, in bytes.
	segment int
	// mergeWidth is that of the schedule's segments; 0: the product's.
	mergeWidth int
	// noSink has nodes make no client that delivers: no term can begin.
	noSink atomic.Bool
	// noClocks has no node learn the clock of another, as where certificates of the API have expired.
	noClocks atomic.Bool
	// limits are small where the script says so.
	limits broker.Limits
	// fetchWait is stretched with the heartbeat: waiting fetches cost real time.
	fetchWait time.Duration

	// raise is told what happens at a node, and returns when it may go on; nil: nobody waits
	// for events. pause and waitFor are how the player waits: it acts on events meanwhile.
	raise   func(n *node, event string)
	pause   func(time.Duration)
	waitFor func(done <-chan struct{})
}

// newCluster starts kfake and the nodes. It must be called inside a bubble; what it
// starts is stopped by stop, which must be called before the bubble ends.
func newCluster(t testing.TB, settings arguments) *Cluster {
	t.Helper()
	c := &Cluster{
		t: t, network: newNetwork(), dir: t.TempDir(), observer: newObserver(),
		pause: time.Sleep, waitFor: func(done <-chan struct{}) { <-done },
	}
	var lines slog.Handler = slog.DiscardHandler
	if testing.Verbose() {
		lines = slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})
	}
	c.log = slog.New(c.observer.handler(lines))
	c.observer.cluster = c
	var err error
	c.brokers, err = strconv.Atoi(settings.value("brokers", "1"))
	c.must(err)
	if settings.value("kafka", "") == "files" {
		c.kafkaDir = t.TempDir()
	}
	c.startKafka()
	c.faults, err = newKafkaFaults(c.kafka, c.gate, kgo.Dialer(c.network.dial(userHost)))
	c.must(err)
	if c.kafkaDir != "" {
		c.kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), c.faults.epochEnds)
	}
	var count int
	_, err = fmt.Sscan(settings.value("nodes", "3"), &count)
	c.must(err)
	c.config = config.Default()
	c.config.Cluster.Bootstrap = true
	c.config.Cluster.Members = nil
	for i := range count {
		c.config.Cluster.Members = append(c.config.Cluster.Members, config.Member{
			ID:   fmt.Sprintf("n%d", i+1),
			Raft: fmt.Sprintf("127.0.0.1:%d", 7301+i),
			API:  fmt.Sprintf("127.0.0.1:%d", 7401+i),
		})
	}
	c.flushBytes, err = strconv.ParseInt(settings.value("flush", "1048576"), 10, 64)
	c.must(err)
	c.segment, err = strconv.Atoi(settings.value("segment", "4194304"))
	c.must(err)
	c.mergeWidth, err = strconv.Atoi(settings.value("merge", "0"))
	c.must(err)
	c.limits = limitsOf(settings)
	c.faults.ordinary = c.span(settings.value("answer", "0s"))
	c.config.Raft.Heartbeat = c.span(settings.value("heartbeat", "300ms"))
	c.fetchWait = c.config.Raft.Heartbeat
	route := config.NewRoute(allDelayTopics)
	route.Start = settings.value("start", "")
	route.MissingTargetTimeout = c.span(settings.value("missing_target_timeout", "5m"))
	c.config.Routes = []config.Route{route}
	program, err := strconv.ParseUint(settings.value("program", "0"), 10, 32)
	c.must(err)
	for _, m := range c.config.Cluster.Members {
		n := newNode(c, m)
		n.program = storage.Level(program)
		n.files.ordinary = c.span(settings.value("sync", "0s"))
		c.nodes = append(c.nodes, n)
	}
	return c
}

// allDelayTopics is what a route is from unless a script says otherwise.
const allDelayTopics = "*.delay"

// limitsOf returns the product's limits, smaller where the settings say so.
func limitsOf(settings arguments) broker.Limits {
	limits := broker.DefaultLimits()
	set := func(limit *int, name string) {
		if n, err := strconv.Atoi(settings.value(name, "")); err == nil {
			*limit = n
		}
	}
	s := &limits.Schedule
	set(&s.Loaded, "loaded")
	set(&s.Handed, "handed")
	set(&s.Feed, "feed")
	s.HandedAll = 16 * s.Handed
	set(&s.Page, "page")
	// A larger one would empty the window as soon as it is filled, or be read again and again for a target that is full.
	s.Page = min(s.Page, s.Loaded/4, max(s.Handed/2, 1))
	limits.Deliver.Aside = max(s.Handed-s.Page, 0)
	set(&limits.Deliver.Flying, "flying")
	set(&limits.Ingest.Proposal, "proposal")
	return limits
}

// startKafka starts Kafka, with what it has in its directory.
func (c *Cluster) startKafka() {
	c.t.Helper()
	ports := make([]int, c.brokers)
	for i := range ports {
		ports[i] = kafkaPort + i
	}
	c.gate = kafkatest.NewGate(c.network.listenKafka)
	options := []kfake.Opt{
		kfake.NumBrokers(c.brokers), kfake.Ports(ports...), kfake.ListenFn(c.gate.Listen),
		kfake.BrokerConfigs(map[string]string{"offsets.retention.check.interval.ms": checkGroups}),
	}
	if c.kafkaDir != "" {
		options = append(options, kfake.DataDir(c.kafkaDir))
	}
	var err error
	c.kafka, err = kfake.NewCluster(options...)
	c.must(err)
}

// stop ends everything that the bubble has to see end.
func (c *Cluster) stop() {
	for _, n := range c.nodes {
		n.thaw()
		c.network.set(open, n.member.ID, c.hosts()...)
	}
	for _, n := range c.nodes {
		n.stop()
	}
	c.faults.letGo()
	synctest.Wait()
	c.kafka.Close()
}

// user returns a new client for one step of a script: an idle one would cost real
// time for every virtual minute, and remember topics that are gone.
func (c *Cluster) user(options ...kgo.Opt) (*kgo.Client, *kadm.Client) {
	c.t.Helper()
	user, err := kgo.NewClient(append(options,
		kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", kafkaPort)),
		kgo.Dialer(c.network.dial(userHost)),
		kgo.MaxVersions(c.faults.older),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.DisableClientMetrics(),
	)...)
	c.must(err)
	return user, kadm.NewClient(user)
}

// kafkaHosts are those of all Kafka brokers.
func (c *Cluster) kafkaHosts() []string {
	hosts := []string{kafkaHost}
	for i := 1; i < c.brokers; i++ {
		hosts = append(hosts, kafkaHost+strconv.Itoa(i+1))
	}
	return hosts
}

func (c *Cluster) hosts() []string {
	return append(append(c.kafkaHosts(), userHost), c.nodeHosts()...)
}

func (c *Cluster) nodeHosts() []string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.member.ID)
	}
	return hosts
}

// leader waits for a node that leads in its own eyes and whose term runs.
func (c *Cluster) leader() *node {
	c.t.Helper()
	var found *node
	c.await(10*time.Minute, "a leader", func() bool {
		found = c.find("leader")
		return found != nil
	})
	return found
}

// node returns the node of that name; "leader" and "follower" are found now.
func (c *Cluster) node(name string) *node {
	c.t.Helper()
	if isRole(name) {
		c.leader()
	}
	n := c.find(name)
	if n == nil {
		c.t.Fatalf("there is no node %q", name)
	}
	return n
}

// isRole reports whether the name is that of whichever node leads, or follows.
func isRole(name string) bool { return name == "leader" || name == "follower" }

// find returns the node that has the name, or the role at this moment, and nil if none has.
func (c *Cluster) find(name string) *node {
	leads := func(n *node) bool { return n.reachable() && n.broker.Leading() }
	isMeant := func(n *node) bool { return n.member.ID == name }
	switch name {
	case "leader":
		isMeant = leads
	case "follower":
		leader := slices.IndexFunc(c.nodes, leads)
		isMeant = func(n *node) bool { return leader >= 0 && n != c.nodes[leader] && n.reachable() }
	}
	if i := slices.IndexFunc(c.nodes, isMeant); i >= 0 {
		return c.nodes[i]
	}
	return nil
}

// await lets virtual time pass until the condition holds.
func (c *Cluster) await(most time.Duration, what string, holds func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(most)
	for !holds() {
		if time.Now().After(deadline) {
			c.t.Fatalf("no %s within %v", what, most)
		}
		c.pause(max(c.config.Raft.Heartbeat/10, 10*time.Millisecond))
	}
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) span(text string) time.Duration {
	c.t.Helper()
	d, err := parseSpan(text)
	c.must(err)
	return d
}

// members are the same for the node and for the broker.
func (c *Cluster) members() []member.Member {
	var members []member.Member
	for _, m := range c.config.Cluster.Members {
		members = append(members, member.Member(m))
	}
	return members
}

func (c *Cluster) dataDir(member string, life int) string {
	return filepath.Join(c.dir, fmt.Sprintf("%s-%d", member, life))
}
