// Package dev runs a cluster for development on this machine: an embedded Kafka and some nodes, each a
// process of the program itself.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
)

// startTimeout bounds how long Kafka and the nodes may take to be ready.
const startTimeout = 60 * time.Second

// API is where the first node answers with the usual ports.
const API = "127.0.0.1:7401"

// Names of the hidden verbs of the program that are started: a Kafka, with --data-dir and --port, and a node,
// with the flags of its configuration. They end when standard input does.
const (
	KafkaVerb = "dev-kafka"
	NodeVerb  = "dev-node"
)

// A Cluster is one for development with a Kafka of its own, all on loopback. It runs once.
type Cluster struct {
	Dir                          string    // of all data and logs
	Nodes                        int       // 1 or 3
	KafkaPort, APIPort, RaftPort int       // of the first node; the others follow
	Out                          io.Writer // may be written to by several goroutines at a time

	kafka   *child          // nil: not started
	nodes   []*child        // in order; keepNode has each in its hands until group has ended
	group   *errgroup.Group // watches each child from its start
	started atomic.Bool     // all were ready
	running atomic.Int32    // nodes
}

// Run starts Kafka, then the nodes, and stops them in the opposite order when ctx ends, or Kafka does, or the
// last of the nodes that run. Another node that ends is started again.
func (d *Cluster) Run(ctx context.Context) (err error) {
	lock, err := d.lockFolder()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := d.checkSize(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	d.group, ctx = errgroup.WithContext(ctx)
	d.group.Go(func() error {
		if err := d.start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // Ctrl-C while starting, or a child ended, which says so itself
			}
			return err
		}
		d.started.Store(true)
		d.welcome()
		return greet(ctx, d.brokers(), d.Out)
	})
	return d.group.Wait()
}

// start returns when all are ready. Its children are watched until ctx ends.
func (d *Cluster) start(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.checkFree(); err != nil {
		return err
	}
	if err := d.makeFolders(); err != nil {
		return err
	}
	kafka, err := startChild("kafka", d.log("kafka"), os.O_TRUNC, KafkaVerb, "--data-dir", filepath.Join(d.Dir, "kafka"), "--port", strconv.Itoa(d.KafkaPort))
	if err != nil {
		return err
	}
	d.kafka = kafka
	d.group.Go(func() error { return kafka.watch(ctx) })
	if err := kafka.await(soon, d.Out, dials(d.brokers())); err != nil {
		return err
	}
	for i := range d.Nodes {
		node, err := d.startNode(i, os.O_TRUNC)
		if err != nil {
			return err
		}
		d.nodes = append(d.nodes, node)
	}
	for i, node := range d.nodes {
		d.group.Go(func() error { return d.keepNode(ctx, i, node) })
	}
	for i, node := range slices.Clone(d.nodes) {
		if err := node.await(soon, d.Out, api.NewClient(d.api(i)).Ready); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the nodes at the same time, then Kafka.
func (d *Cluster) stop() error {
	if d.kafka == nil {
		return nil
	}
	var nodes errgroup.Group
	for _, c := range d.nodes {
		nodes.Go(c.stop)
	}
	return errors.Join(nodes.Wait(), d.kafka.stop())
}

// nodeArgs is the command line of one node.
func (d *Cluster) nodeArgs(i int) []string {
	c := config.Default()
	c.Cluster.Members = nil
	for i := range d.Nodes {
		c.Cluster.Members = append(c.Cluster.Members, config.Member{ID: nodeID(i), Raft: Loopback(d.RaftPort + i), API: d.api(i)})
	}
	keys := config.Keys()
	members := keys[slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "cluster.members" })]
	return []string{
		NodeVerb,
		"--node.id", nodeID(i),
		"--node.data_dir", filepath.Join(d.Dir, nodeID(i)),
		"--cluster.name", "dev",
		"--cluster.bootstrap",
		"--cluster.members", members.Text(c),
		"--kafka.brokers", d.brokers(),
		"--routes", `[{from: "*.delay", start: earliest}]`,
	}
}

func (d *Cluster) welcome() {
	fmt.Fprintf(d.Out, "Kafka   %s (embedded, for development only)\n", d.brokers())
	for i := range d.Nodes {
		fmt.Fprintf(d.Out, "%s      http://%s/v1/status, process %d\n", nodeID(i), d.api(i), d.nodes[i].cmd.Process.Pid)
	}
	fmt.Fprintf(d.Out, "data    %s, logs in it too\n\n", d.Dir)
	var brokers, address string // the verbs' defaults fit the default ports
	if defaults := config.Default(); d.brokers() != defaults.Kafka.Brokers[0] {
		brokers = " --kafka.brokers " + d.brokers()
	}
	if d.api(0) != API {
		address = " --api " + d.api(0)
	}
	fmt.Fprintf(d.Out, "try     carillon schedule%s --to orders --in 5s hello\n", brokers)
	fmt.Fprintf(d.Out, "        kcat -C -b %s -t orders -f '%%s %%h\\n'\n", d.brokers())
	fmt.Fprintf(d.Out, "        carillon top%s\n", address)
	if d.Nodes > 1 {
		fmt.Fprintf(d.Out, "        kill -9 %d, or another of the nodes: the others go on\n", d.nodes[0].cmd.Process.Pid)
	}
	fmt.Fprintln(d.Out)
}

func (d *Cluster) log(name string) string { return filepath.Join(d.Dir, name+".log") }

func (d *Cluster) brokers() string  { return Loopback(d.KafkaPort) }
func (d *Cluster) api(i int) string { return Loopback(d.APIPort + i) }

func nodeID(i int) string { return "n" + strconv.Itoa(i+1) }

// Loopback returns the address of the port there.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// dials returns what tells whether something listens at the address.
func dials(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
