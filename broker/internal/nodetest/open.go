// Package nodetest gives tests a Raft group of one, and what counts beside it.
package nodetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// Open opens a group of one in the test's bubble, which leads when it returns.
func Open(t testing.TB, ctx context.Context) *node.Node {
	var stack kfake.VirtualNetwork
	node, err := node.Open(ctx, node.Config{
		NodeID: "n1", DataDir: t.TempDir(), ClusterName: "test", Bootstrap: true,
		Members: []member.Member{{ID: "n1", Raft: "127.0.0.1:7301", API: "127.0.0.1:7401"}},
		Listen:  stack.Listen, Dial: stack.DialContext, Logger: slog.New(slog.DiscardHandler),
		SegmentSize: 4 << 20, Understands: storage.NewestLevel,
	})
	if err != nil {
		t.Fatal(err)
	}
	<-node.Terms()
	return node
}

// Now returns the time, epoch milliseconds.
func Now() int64 { return time.Now().UnixMilli() }
