package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// An unheardConn loses what the other side answers, while unheard is that side, but for its greeting.
type unheardConn struct {
	net.Conn
	to      string
	unheard *atomic.Value
	writes  atomic.Int64
}

func (c *unheardConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (c *unheardConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || c.unheard.Load() != c.to || c.writes.Load() == 1 {
			return n, err
		}
	}
}

// A follower takes what it is sent, writes its schedule and cuts its log, and the leader, which has all of its own, hears no
// answer.
func TestFollower_thatWasUnheardGoesOnFromWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away = "n3"
		var unheard atomic.Value
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.FlushBytes = 64 << 20
			if cfg.NodeID == away {
				cfg.FlushBytes = 32 << 10
			}
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				to, _, _ := strings.Cut(addr, ".")
				return &unheardConn{Conn: conn, to: to, unheard: &unheard}, err
			}
		})
		c.open("n1", "n2", away)
		c.eventually("another leader", func() bool { return c.leader().cfg.NodeID != away || c.leader().TransferLeadership(t.Context()) != nil })
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, l.batch(20, 1000))
		c.agree()
		term, known := n.Status().Term, n.transport.peer(c.nodes[away].raftID()).lastIndex
		unheard.Store(away)
		must(t, n, l.batch(20, 2000))
		c.eventually("a flush", func() bool { return c.nodes[away].Status().SnapshotIndex > known })
		for range 100 {
			must(t, n, l.batch(20, 1000))
		}
		c.eventually("a follower that has cut off what the leader knows of it", func() bool {
			return errors.Is(c.nodes[away].logs.GetLog(known, new(raft.Log)), raft.ErrLogNotFound)
		})
		unheard.Store("")
		c.agree()
		if status := n.Status(); status.Term != term {
			t.Errorf("it took term %d to agree, after %d", status.Term, term)
		}
	})
}
