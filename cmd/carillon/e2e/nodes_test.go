package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"
)

//go:embed testdata/node.yaml
var nodeConfig string

// A carillonCluster is a set of `carillon serve` processes.
type carillonCluster struct {
	t      testing.TB
	binary string
	nodes  []*carillonNode
	born   uint64 // the term in which the cluster was first ready
}

type carillonNode struct {
	ID, Raft, API, Data string
	Members             []*carillonNode
	Brokers             []string
	OffLoopback         bool   // where it listens
	Certs               string // the folder with its certificate, key and authorities; empty: none
	Heartbeat           string // of Raft; empty: 300ms

	token string // that the tests show to its API, if any

	inside  []string // what runs it elsewhere, in a network namespace say
	binary  string   // what it is started with
	config  string
	process *process
}

// A status is what the tests read of /v1/status.
type status struct {
	Node    string `json:"node"`
	State   string `json:"state"`
	Leader  string `json:"leader"`
	Term    uint64 `json:"term"`
	Pending uint64 `json:"pending"`

	Problems []string `json:"problems"`
}

// buildCarillon returns the path of the program, which the first test that needs it builds for all.
func buildCarillon(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.programDir == "" {
		dir, err := os.MkdirTemp("", "carillon-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		run(t, ".", []string{"CGO_ENABLED=0"}, "go", "build", "-o", dir, "github.com/carillonmq/carillon/cmd/carillon")
		shared.programDir = dir
	}
	return filepath.Join(shared.programDir, "carillon")
}

// startCarillon starts a new cluster with one node per data folder and waits until it serves.
func startCarillon(t testing.TB, brokers []string, data ...string) *carillonCluster {
	t.Helper()
	c := newCarillon(t, brokers, data...)
	c.start()
	c.born = c.term()
	return c
}

// newCarillon configures a new cluster and starts nothing.
func newCarillon(t testing.TB, brokers []string, data ...string) *carillonCluster {
	t.Helper()
	c := &carillonCluster{t: t, binary: buildCarillon(t)}
	addrs := freeAddrs(t, 2*len(data))
	for i := range data {
		c.nodes = append(c.nodes, &carillonNode{
			ID: "n" + strconv.Itoa(i+1), Raft: addrs[2*i], API: addrs[2*i+1],
			Data: filepath.Join(data[i], "carillon"), Brokers: brokers, binary: c.binary,
			config: filepath.Join(t.TempDir(), "carillon.yaml"),
		})
	}
	c.configure()
	return c
}

// configure writes the configuration of every node, which the next start reads.
func (c *carillonCluster) configure() {
	c.t.Helper()
	config := template.Must(template.New("config").Parse(nodeConfig))
	for _, n := range c.nodes {
		n.Members = c.nodes
		var text strings.Builder
		if err := config.Execute(&text, n); err != nil {
			c.t.Fatal(err)
		}
		write(c.t, n.config, []byte(text.String()))
	}
}

// start starts the nodes that do not run, with the data they have, and waits until all are ready.
func (c *carillonCluster) start() {
	c.t.Helper()
	c.launch()
	for _, n := range c.nodes {
		await(c.t, patience, n.ID+" is ready", n.ready)
	}
}

// launch starts the nodes that do not run.
func (c *carillonCluster) launch() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.process == nil || !n.process.running() {
			n.launch(c.t)
		}
	}
}

func (n *carillonNode) launch(t testing.TB) {
	t.Helper()
	n.process = start(t, "carillon "+n.ID, nil, append(slices.Clone(n.inside), n.binary, "serve", "--config", n.config)...)
}

// kill ends all nodes at once.
func (c *carillonCluster) kill() {
	for _, n := range c.nodes {
		n.process.kill()
	}
}

// leader waits for a node that leads and whose term runs.
func (c *carillonCluster) leader() *carillonNode {
	c.t.Helper()
	var leader *carillonNode
	await(c.t, patience, "a node leads and is ready", func() bool {
		for _, n := range c.nodes {
			if s, err := n.status(); err == nil && s.State == "leader" && n.ready() {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// term returns the term of a leader that is ready.
func (c *carillonCluster) term() uint64 {
	c.t.Helper()
	s, err := c.leader().status()
	if err != nil {
		c.t.Fatal(err)
	}
	return s.Term
}

// elections returns by how much the term has grown since the start: by one per kill of a leader,
// by more when votes are split, or on a machine too busy for heartbeats.
func (c *carillonCluster) elections() int { return int(c.term() - c.born) }

// awaitPending waits until the leader says that exactly n messages are pending.
func (c *carillonCluster) awaitPending(limit time.Duration, n uint64) {
	c.t.Helper()
	await(c.t, limit, strconv.FormatUint(n, 10)+" messages are pending", func() bool {
		pending, ok := c.pending()
		return ok && pending == n
	})
}

// pending returns what the leader, if there is one, says is pending.
func (c *carillonCluster) pending() (n uint64, ok bool) {
	for _, node := range c.nodes {
		if s, err := node.status(); err == nil && s.State == "leader" {
			return s.Pending, true
		}
	}
	return 0, false
}

func (n *carillonNode) status() (status, error) {
	var s status
	body, err := n.get("/v1/status")
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return s, err
}

func (n *carillonNode) ready() bool {
	_, err := n.get("/readyz")
	return err == nil
}

// get returns the body of an answer with status 200.
func (n *carillonNode) get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.API+path, nil)
	if err != nil {
		return nil, err
	}
	if n.token != "" {
		req.Header.Set("Authorization", "Bearer "+n.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("answered " + resp.Status)
	}
	return io.ReadAll(resp.Body)
}
