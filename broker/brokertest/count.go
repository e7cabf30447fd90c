package brokertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A traffic counts what the nodes ask of Kafka: faults of cost, which virtual time does not show.
type traffic struct {
	dials, lookups, produces atomic.Int64
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// metered returns a dialer whose connections are counted, and what is sent over them.
func (t *traffic) metered(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		t.dials.Add(1)
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &meteredConn{c, t}, nil
	}
}

type meteredConn struct {
	net.Conn
	traffic *traffic
}

// Write counts a request. The client writes each at once:
//
//	length 4 | key 2 | ...
func (c *meteredConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && int(binary.BigEndian.Uint32(b)) == len(b)-4 {
		switch kmsg.Key(binary.BigEndian.Uint16(b[4:])) {
		case kmsg.Metadata, kmsg.DescribeTopicPartitions, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch:
			c.traffic.lookups.Add(1)
		case kmsg.Produce:
			c.traffic.produces.Add(1)
		}
	}
	return c.Conn.Write(b)
}

// The most that there was of something at any time is kept, since what piles up may be gone when all is quiet.

// sampleCosts looks how many goroutines, files and bytes there are now.
func (o *observer) sampleCosts() {
	c := &o.most
	c.Files = max(c.Files, files(o.cluster.dir))
	if o.weighs && liveHeap() > c.Memory+c.Memory/8 {
		// What was allocated during a collection counts as left by it, and what lies in pools as alive: on busy processors that
		// was ten times as much as lived, and after one more collection still up to twice as much.
		runtime.GC()
		runtime.GC()
		c.Memory = max(c.Memory, liveHeap())
	}
	// All of the process are counted at once, and only if there are more than before who of them is of this cluster. When most
	// of them were Kafka's and have gone, what comes then counts again.
	all := int64(runtime.NumGoroutine())
	o.goroutines = min(o.goroutines, 2*all)
	if all > o.goroutines+o.goroutines/20 {
		o.goroutines = all
		if most, own := crowd(goroutines()); own > c.MostGoroutines {
			c.MostGoroutines, c.MostCrowd = own, most
		}
	}
}

// liveHeap returns how many bytes the last collection of garbage has left.
func liveHeap() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

// costs returns what was spent until now.
func (o *observer) costs() ledger.Costs {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sampleCosts()
	c := o.ledger.Costs // with what the log has cost
	c.MostGoroutines, c.MostCrowd, c.Files, c.Memory = o.most.MostGoroutines, o.most.MostCrowd, o.most.Files, o.most.Memory
	c.Dials, c.Lookups, c.Produces = o.traffic.dials.Load(), o.traffic.lookups.Load(), o.traffic.produces.Load()
	c.Nodes, c.Brokers = int64(len(o.cluster.nodes)), int64(o.cluster.brokers)
	c.Crowd, c.Goroutines = crowd(goroutines())
	c.Scanned = o.scanned - o.own
	limits := o.cluster.limits.Schedule
	c.Feed, c.Loaded, c.Handed, c.Page = int64(limits.Feed), int64(limits.Loaded), int64(limits.Handed), int64(limits.Page)
	for _, n := range o.cluster.nodes {
		if n.running() {
			c.Scanned += int64(n.raft().Store().Scanned())
		}
	}
	return c
}

// closed notes what the store of a node that ends has cost.
func (o *observer) closed(store *storage.Store) { o.scanned += int64(store.Scanned()) }

// goroutines counts those of this bubble, but for Kafka's and its gate's, by what has started them.
func goroutines() map[string]int64 {
	dump := make([]byte, 1<<20)
	n := runtime.Stack(dump, true)
	for ; n == len(dump); n = runtime.Stack(dump, true) {
		dump = make([]byte, 2*len(dump))
	}
	// The dump names the bubble with each goroutine, its own first.
	own := regexp.MustCompile(`synctest bubble \d+\]`).Find(dump)
	counts := make(map[string]int64)
	for stack := range bytes.SplitSeq(dump[:n], []byte("\n\n")) {
		if bytes.Contains(stack, own) {
			_, by, _ := bytes.Cut(stack, []byte("\ncreated by "))
			by, _, _ = bytes.Cut(by, []byte(" in goroutine "))
			if !bytes.Contains(by, []byte("/kfake.")) && !bytes.Contains(by, []byte("/kafkatest.")) {
				counts[string(by)]++
			}
		}
	}
	return counts
}

// crowd returns of what there is most, and how much there is of all.
func crowd(counts map[string]int64) (most string, all int64) {
	for what, n := range counts {
		if all += n; n > counts[most] || n == counts[most] && what < most {
			most = what
		}
	}
	return most, all
}

// files counts the open files below the directory.
func files(dir string) (count int64) {
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	if err != nil {
		return 0 // not Linux
	}
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join(open, e.Name())); err == nil && strings.HasPrefix(path, dir) {
			count++
		}
	}
	return count
}
