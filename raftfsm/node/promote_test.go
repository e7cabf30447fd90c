package node

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A thinConn takes 200 KB a second once thin is set, but for what is small.
type thinConn struct {
	net.Conn
	thin *atomic.Bool
}

func (c thinConn) Write(b []byte) (int, error) {
	if c.thin.Load() && len(b) > 2000 {
		time.Sleep(time.Duration(len(b)) * time.Second / (200 << 10))
	}
	return c.Conn.Write(b)
}

// Of five members two were replaced, and are being sent the schedule, without a vote. All lose their power, and of the three
// who vote two come back, which is enough: the leader, which does not know yet how far its log is committed, must not give
// a vote to those who have nothing.
func TestPromote_givesNoVoteToWhoHasNothingYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var thin atomic.Bool
		c := newCluster(t, 5, func(cfg *Config) {
			cfg.FlushBytes = 64 << 10
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if err == nil && (strings.HasPrefix(addr, "n4") || strings.HasPrefix(addr, "n5")) {
					conn = thinConn{conn, &thin}
				}
				return conn, err
			}
		})
		c.open("n1", "n2", "n3", "n4", "n5")
		n := c.leader()
		for !slices.Contains([]string{"n1", "n2", "n3"}, n.cfg.NodeID) {
			_, _ = n.TransferLeadershipTo(t.Context(), []string{"n1"})
			n = c.leader()
		}
		l := startLoad(t, n)
		for range 400 {
			must(t, n, l.batch(20, 2000))
		}
		c.agree()
		c.close("n4", "n5")
		c.wipe("n4")
		c.wipe("n5")
		time.Sleep(5 * time.Second)
		for _, id := range []string{"n4", "n5"} {
			if err := n.Replace(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			must(t, n, l.batch(20, 2000))
		}
		thin.Store(true)
		c.open("n4", "n5")
		time.Sleep(5 * time.Second)
		c.close("n1", "n2", "n3")
		c.open("n1", "n2")
		c.eventually("commit", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return c.nodes["n1"].Barrier(ctx) == nil || c.nodes["n2"].Barrier(ctx) == nil
		})
		thin.Store(false)
		c.open("n3")
		c.agree()
	})
}
