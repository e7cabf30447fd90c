package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
)

// startTimeout bounds how long Kafka and the nodes may take to be ready.
const startTimeout = 60 * time.Second

// A dev is a cluster for development with a Kafka of its own, all on loopback.
type dev struct {
	dir                          string
	nodes                        int
	kafkaPort, apiPort, raftPort int
	out                          io.Writer
	children                     []*child        // in the order of their start
	group                        *errgroup.Group // watches each child from its start
}

func devCommand() *cobra.Command {
	var d dev
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster and a Kafka for development, with nothing installed",
		Long: "Run a cluster of one or three nodes and an embedded Kafka on loopback until Ctrl-C, and show one\n" +
			"message being delivered. The data is kept, and found again at the next start. The embedded Kafka\n" +
			"(kfake) is for development: it has one broker and no security, and does not survive its own kill -9.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.nodes != 1 && d.nodes != 3 {
				return &usageError{fmt.Errorf("--nodes is %d: use 1 or 3", d.nodes)}
			}
			if err := d.checkPorts(); err != nil {
				return err
			}
			d.out = cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.dir, "data-dir", "./carillon-dev", "folder of all data and logs; delete it to start anew")
	cmd.Flags().IntVar(&d.nodes, "nodes", 1, "size of the cluster, 1 or 3; the data folder keeps to it")
	cmd.Flags().IntVar(&d.kafkaPort, "kafka-port", 9092, "port of the embedded Kafka")
	cmd.Flags().IntVar(&d.apiPort, "api-port", 7401, "port of the first node's API; the others follow")
	cmd.Flags().IntVar(&d.raftPort, "raft-port", 7301, "port of the first node's Raft; the others follow")
	return cmd
}

// run starts Kafka, then the nodes, and stops them in the opposite order when ctx
// ends or one of them does.
func (d *dev) run(ctx context.Context) (err error) {
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
		d.welcome()
		return greet(ctx, d.brokers(), d.out)
	})
	return d.group.Wait()
}

// start returns when all are ready. Its children are watched until ctx ends.
func (d *dev) start(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.checkFree(); err != nil {
		return err
	}
	if err := d.makeFolders(); err != nil {
		return err
	}
	kafka, err := d.startChild(ctx, "kafka", "dev-kafka", "--data-dir", filepath.Join(d.dir, "kafka"), "--port", strconv.Itoa(d.kafkaPort))
	if err != nil {
		return err
	}
	if err := kafka.await(soon, d.out, dials(d.brokers())); err != nil {
		return err
	}
	for i := range d.nodes {
		if _, err := d.startChild(ctx, nodeID(i), d.nodeArgs(i)...); err != nil {
			return err
		}
	}
	for i, node := range d.children[1:] {
		if err := node.await(soon, d.out, api.NewClient(d.api(i)).Ready); err != nil {
			return err
		}
	}
	return nil
}

// startChild starts a child that ends the whole when it does. What answers at its
// address tells nothing of that: it may be another process.
func (d *dev) startChild(ctx context.Context, name string, args ...string) (*child, error) {
	c, err := startChild(name, filepath.Join(d.dir, name+".log"), args...)
	if err != nil {
		return nil, err
	}
	d.children = append(d.children, c)
	d.group.Go(func() error { return c.watch(ctx) })
	return c, nil
}

// stop ends the nodes at the same time, then Kafka.
func (d *dev) stop() error {
	if len(d.children) == 0 {
		return nil
	}
	var nodes errgroup.Group
	for _, c := range d.children[1:] {
		nodes.Go(c.stop)
	}
	return errors.Join(nodes.Wait(), d.children[0].stop())
}

// nodeArgs is the command line of one node.
func (d *dev) nodeArgs(i int) []string {
	c := config.Default()
	c.Cluster.Members = nil
	for i := range d.nodes {
		c.Cluster.Members = append(c.Cluster.Members, config.Member{ID: nodeID(i), Raft: loopback(d.raftPort + i), API: d.api(i)})
	}
	keys := config.Keys()
	members := keys[slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "cluster.members" })]
	return []string{
		"dev-node",
		"--node.id", nodeID(i),
		"--node.data_dir", filepath.Join(d.dir, nodeID(i)),
		"--cluster.name", "dev",
		"--cluster.bootstrap",
		"--cluster.members", members.Text(c),
		"--kafka.brokers", d.brokers(),
		"--routes", `[{from: "*.delay", start: earliest}]`,
	}
}

func (d *dev) welcome() {
	fmt.Fprintf(d.out, "Kafka   %s (embedded, for development only)\n", d.brokers())
	for i := range d.nodes {
		fmt.Fprintf(d.out, "%s      http://%s/v1/status\n", nodeID(i), d.api(i))
	}
	fmt.Fprintf(d.out, "data    %s, logs in it too\n\n", d.dir)
	var brokers, address string // the verbs' defaults fit the default ports
	if defaults := config.Default(); d.brokers() != defaults.Kafka.Brokers[0] {
		brokers = " --kafka.brokers " + d.brokers()
	}
	if d.api(0) != defaultAPI {
		address = " --api " + d.api(0)
	}
	fmt.Fprintf(d.out, "try     carillon schedule%s --to orders --in 5s hello\n", brokers)
	fmt.Fprintf(d.out, "        kcat -C -b %s -t orders -f '%%s %%h\\n'\n", d.brokers())
	fmt.Fprintf(d.out, "        carillon status%s\n\n", address)
}

func (d *dev) brokers() string  { return loopback(d.kafkaPort) }
func (d *dev) api(i int) string { return loopback(d.apiPort + i) }

func nodeID(i int) string { return "n" + strconv.Itoa(i+1) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

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
