package brokertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/storage"
)

// oldData is the data directory of a node of one, killed while it ran the last program
// that knew nothing of feature levels, 309c7bc, against real Kafka. It had taken in, from
// two partitions of orders.delay,
//
//	200 "message 0" to "message 199", with keys and headers, due in 2035
//	 50 "gone 200" to "gone 249", which it delivered
//	  3 of a null value, of an empty one, and for a given partition, due in 2035
//	  1 that cannot be scheduled: a dead letter, which its topic did not take
//	    (here its schedule went to disk: one segment, after five minutes)
//	 50 "message 300" to "message 349", due in 2035
//	 10 "held 350" to "held 359", past due, for the topic nowhere, which did not exist
//
// so that a part is in a segment and a part in the log alone.
const oldData = "../testdata/data-309c7bc.tar.gz"

// unpack writes the archive's files into the folder, and leaves holes where they hold
// zeros: a file of the log is 64 MB long.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		path := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if err == nil && header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else if err == nil {
			err = writeSparse(path, header.Size, files)
		}
		if err != nil {
			t.Fatalf("unpack %s: %v", archive, err)
		}
	}
}

func writeSparse(path string, size int64, content io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	buf, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(content, buf)
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := file.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// oldNode has the identity that the data was written with.
func oldNode(t *testing.T, c *Cluster, dir string) *node {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err != nil {
		t.Fatal(err)
	}
	var identity struct {
		ClusterName string          `json:"cluster_name"`
		Members     []config.Member `json:"members"`
	}
	if err := json.Unmarshal(b, &identity); err != nil {
		t.Fatal(err)
	}
	c.config.Cluster.Name, c.config.Cluster.Members = identity.ClusterName, identity.Members
	return c.nodes[0]
}

// The positions and what is pending were in the segment and in the log of the old
// program; what it held and its dead letter as well. All of it is delivered, in the
// middle of which the level is raised and the node restarted.
func TestOldData_isOpenedAndDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=1"}))
		defer c.stop()
		dir := c.dataDir("n1", 0)
		unpack(t, oldData, dir)
		n := oldNode(t, c, dir)
		p := &player{Cluster: c, start: time.Now()}
		n.clock.step(time.Until(time.Date(2034, 12, 31, 23, 50, 0, 0, time.UTC)))
		c.must(p.createTopic("orders", arguments{}))
		n.start()
		store := c.leader().raft().Store()
		state := store.State()
		if state.Level != storage.LevelOne || state.Mode != config.AtLeastOnce || !state.Surveyed {
			t.Errorf("level %d, mode %q, surveyed %v", state.Level, state.Mode, state.Surveyed)
		}
		var positions []string
		for _, at := range state.Positions {
			positions = append(positions, fmt.Sprintf("%s/%d %d", at.Topic, at.Partition, at.Next))
		}
		if want := []string{"orders.delay/0 158", "orders.delay/1 156"}; !slices.Equal(positions, want) {
			t.Errorf("positions %v, want %v", positions, want)
		}
		if err := store.Check(); err != nil {
			t.Error(err)
		}

		time.Sleep(2 * time.Minute)
		if s := n.broker.Status(); s.Pending != 263 || !slices.Equal(s.Parked, []string{"nowhere"}) {
			t.Errorf("%d pending, parked %v; want all but the dead letter, and nowhere", s.Pending, s.Parked)
		}
		if _, err := n.broker.RaiseLevel(t.Context()); err != nil {
			t.Errorf("raise: %v", err)
		}
		c.must(p.createTopic("nowhere", arguments{}))
		time.Sleep(6 * time.Minute) // a flush, too
		n.stop()
		n.start()
		if got := c.leader().raft().Store().State(); got.Level != storage.NewestLevel || got.Pending != 253 {
			t.Errorf("level %d and %d pending after the raise and a restart", got.Level, got.Pending)
		}
		time.Sleep(10 * time.Minute)
		p.checkOldData()
	})
}

// checkOldData looks at what has come of the old data.
func (p *player) checkOldData() {
	p.t.Helper()
	came := map[string][]string{}
	for _, d := range p.consume() {
		if at := d.At.Add(p.nodes[0].clock.settings()[1].offset).UnixMilli(); at < d.Due {
			p.t.Errorf("%q came %d ms early", d.Value, d.Due-at)
		}
		came[d.Topic] = append(came[d.Topic], d.Value)
	}
	var orders, held []string
	for i := range 350 {
		if i < 200 || i >= 300 {
			orders = append(orders, fmt.Sprintf("message %d", i))
		}
		if i == 200 {
			orders = append(orders, "", "", "partition")
		}
	}
	for i := range 10 {
		held = append(held, fmt.Sprintf("held %d", 350+i))
	}
	slices.Sort(held)
	slices.Sort(came["nowhere"])
	want := map[string][]string{"orders": orders, "nowhere": held, p.config.DeadLetter.Topic: {"dead letter of 309c7bc"}}
	for topic, values := range want {
		if !slices.Equal(came[topic], values) {
			p.t.Errorf("%s got %d messages, want %d:\n%s", topic, len(came[topic]), len(values), strings.Join(came[topic], ", "))
		}
	}
}
