package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
)

// headroom is memory that nobody touches, and that therefore takes none: but the collector counts it as
// alive, so the heap may grow by as much besides until the next collection. The heap of a node that
// delivers what it takes in is small, and without this it was collected ten times a second.
const headroom = 32 << 20

// headroomWithin returns how much of it there is with that limit of the runtime's memory, GOMEMLIMIT: to the limit it
// counts as used, so with a low one it would be a part of what the node lacks, and be collected for all the time.
func headroomWithin(limit int64) int {
	if limit < 16*headroom {
		return 0
	}
	return headroom
}

func serveCommand() *cobra.Command {
	keys := config.Keys()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: "Run a node of a cluster until SIGTERM or Ctrl-C, which hand leadership over first; a second one ends\n" +
			"it at once. SIGHUP does nothing, since files that are read again are so by themselves. Every key of the\n" +
			"configuration file is a flag and a variable too.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := load(cmd.Flags(), keys)
			if err != nil {
				return err
			}
			if err := s.Config.Validate(); err != nil {
				return err
			}
			signal.Ignore(syscall.SIGHUP) // by which others are told to read their files again: it would end the node as a crash does
			return serve(cmd.Context(), s.Config, cmd.ErrOrStderr())
		},
	}
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}

// serve runs a node until ctx ends or the node fails.
//
//	config --> logger, metrics
//	           checkDataDir            first, so that no other error hides that it cannot be used
//	           watched                 files of which changes are taken: tokens, certificates
//	           api listener            first, so that a second process fails early
//	           node.Node               log and schedule; asks the others through api.Client
//	           broker.Broker           leads whenever the node does
//	             `--> kafka.Source, kafka.Sink: one of each per term
//	           api.Serve               health, metrics, status, answers to the others
//
// The end comes in the opposite order of dependence: the broker hands leadership
// over, then the API stops answering, then the node closes its files.
func serve(ctx context.Context, c config.Config, stderr io.Writer) (err error) {
	if os.Getenv("GOGC") == "" {
		untouched := make([]byte, headroomWithin(debug.SetMemoryLimit(-1)))
		defer runtime.KeepAlive(untouched)
	}
	log := newLogger(c.Log, stderr)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	if err := checkDataDir(c.Node.DataDir); err != nil {
		return err
	}
	cluster, err := reach.OpenCluster(filepath.Join(c.Node.DataDir, "kafka-cluster-id"))
	if err != nil {
		return inDataDir(c.Node.DataDir, err)
	}
	kafkaOf := reach.Config{Kafka: c.Kafka, ClientID: clientID(c), Logger: log, Cluster: cluster}
	source, sink := kafkaOf, kafkaOf
	source.Hooks, sink.Hooks = []kgo.Hook{newClientMetrics(registry, "source")}, []kgo.Hook{newClientMetrics(registry, "sink")}
	if _, err := sink.Options(); err != nil { // now, rather than when a term begins
		return err
	}
	files := &watched{log: log, metrics: registry}
	access, err := apiAccess(files, c)
	if err != nil {
		return err
	}
	nodes := access.Leader
	replication := nodeConfig(c, nodes, log)
	if peers, err := raftPeers(files, c); err != nil {
		return err
	} else if peers != nil {
		replication.Listen, replication.Dial = peers.Listen, peers.Dial
	}
	listener, err := net.Listen("tcp", c.API.Listen)
	if err != nil {
		return fmt.Errorf("%w: %w", portInUse(c), err)
	}
	defer listener.Close() // for a return before Serve has it
	node, err := node.Open(ctx, replication)
	if ended := context.Cause(ctx); err != nil && errors.Is(err, ended) {
		log.Info("node stopped", "node", c.Node.ID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("start node %s: %w", c.Node.ID, inDataDir(c.Node.DataDir, err))
	}
	defer func() { err = errors.Join(err, inTime(node.Close)) }()
	letters, err := kafka.NewLetters(reach.Config{Kafka: c.Kafka, ClientID: clientID(c), Logger: log})
	if err != nil {
		return err
	}

	b := broker.New(broker.Options{
		Config:  c,
		Node:    node,
		Source:  func() (ingest.Source, error) { return kafka.NewSource(source, c.IsDelayTopic) },
		Sink:    func() (broker.Sink, error) { return kafka.NewSink(sink) },
		Survey:  kafkaOf.Survey,
		Letters: letters,
		Metrics: broker.NewMetrics(registry),
		Logger:  log,
		Trouble: files.trouble,

		AskReach: func(ctx context.Context, m member.Member) (broker.Reached, error) {
			return nodes.Client(m.API).ReachKafka(ctx)
		},
		AskClock: func(ctx context.Context, m member.Member) (broker.ClockReading, error) {
			return nodes.Client(m.API).Clock(ctx)
		},
	})
	registry.MustRegister(broker.NewCollector(b.Status))
	log.Info("node started", "node", c.Node.ID, "version", programVersion(), "raft", c.Raft.Listen, "api", c.API.Listen, "data_dir", c.Node.DataDir)

	group, ctx := errgroup.WithContext(ctx)
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stopAnswering()
		return b.Run(ctx)
	})
	group.Go(func() error { return files.run(answering) })
	group.Go(func() error {
		return cluster.Learn(ctx, reach.Config{Kafka: c.Kafka, ClientID: clientID(c), Logger: log})
	})
	handler := api.NewHandler(b, registry, access.Callers, log)
	if !c.API.Authenticates() && !c.API.AllowUnauthenticated { // so the listener is on loopback
		self, _ := c.Self()
		handler = api.OnLoopback(handler, self.API, log)
	}
	group.Go(func() error { return api.Serve(answering, access.over(listener), handler, log) })
	err = group.Wait()
	log.Info("node stopped", "node", c.Node.ID)
	return err
}

// closePatience is how long a node may take to close, well within the time that whoever has ended a process waits
// before it is killed.
const closePatience = 10 * time.Second

// inTime calls what closes the node, and returns an error when that takes too long: a disk that hangs may take minutes, and
// to end as a crash does loses nothing.
func inTime(closeNode func() error) error {
	closed := make(chan error, 1)
	go func() { closed <- closeNode() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closePatience):
		return fmt.Errorf("the node did not close within %v, as when its disk hangs: the process ends as it is, and the next start goes on from what is on the disk", closePatience)
	}
}

// nodeConfig is the part of the configuration that the replicated side needs.
func nodeConfig(c config.Config, nodes api.Caller, log *slog.Logger) node.Config {
	members := make([]member.Member, len(c.Cluster.Members))
	for i, m := range c.Cluster.Members {
		members[i] = member.Member{ID: m.ID, Raft: m.Raft, API: m.API}
	}
	return node.Config{
		NodeID:      c.Node.ID,
		DataDir:     c.Node.DataDir,
		ClusterName: c.Cluster.Name,
		Members:     members,
		Bootstrap:   c.Cluster.Bootstrap,
		Heartbeat:   c.Raft.Heartbeat,
		Log:         c.Raft.Log,
		ListenAddr:  c.Raft.Listen,
		AskMember: func(ctx context.Context, m member.Member) (member.Standing, error) {
			return nodes.Client(m.API).Standing(ctx)
		},
		Advise: advise(c),
		Logger: log,
	}
}

// clientID is what Kafka's logs and quotas know the node by.
func clientID(c config.Config) string { return "carillon-" + c.Cluster.Name + "-" + c.Node.ID }

// newLogger returns what writes the program's log; the configuration is validated.
func newLogger(c config.Log, stderr io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(stderr, options))
	}
	return slog.New(slog.NewTextHandler(stderr, options))
}
