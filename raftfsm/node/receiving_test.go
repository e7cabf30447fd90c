package node

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A powerCut befalls a node in the middle of what it sends to another: what it writes
// from then on is lost, and nobody hears that its connections end.
type powerCut struct {
	from, to string
	after    int64 // bytes
	happened atomic.Bool
}

type cutConn struct {
	net.Conn
	cut     *powerCut
	to      string
	written int64
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// through returns a dialer whose connections to that node are wrapped.
func (d dialer) through(id string, wrap func(net.Conn) net.Conn) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d(ctx, network, addr)
		if to, _, _ := strings.Cut(addr, "."); err != nil || to != id {
			return c, err
		}
		return wrap(c), nil
	}
}

func (p *powerCut) dialFrom(id string, dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil || id != p.from {
			return c, err
		}
		to, _, _ := strings.Cut(addr, ".")
		return &cutConn{Conn: c, cut: p, to: to}, nil
	}
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.cut.happened.Load() {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if c.written += int64(n); c.to == c.cut.to && c.written > c.cut.after {
		c.cut.happened.Store(true)
	}
	return n, err
}

// Close ends what waits here, and is not heard on the other side.
func (c *cutConn) Close() error {
	if c.cut.happened.Load() {
		return c.Conn.SetDeadline(time.Unix(1, 0))
	}
	return c.Conn.Close()
}

// A leader's machine loses its power while it sends a snapshot. The follower that
// receives it hears of no end, and the other one needs its vote.
func TestSnapshot_thatStopsComingKeepsNobodyFromVoting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := powerCut{after: 500 << 10}
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.FlushBytes = 64 << 10
			cfg.Dial = cut.dialFrom(cfg.NodeID, cfg.Dial)
		})
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		away := otherThan(c, n)
		c.close(away)
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		for range 100 {
			must(t, n, l.batch(20, 1000))
		}
		c.agree()
		cut.from, cut.to = n.cfg.NodeID, away
		c.open(away)
		c.eventually("half of a snapshot", cut.happened.Load)
		c.isolate(n.cfg.NodeID)
		delete(c.nodes, n.cfg.NodeID)
		time.Sleep(15 * time.Second)
		if next := c.leader(); next.store.Pending() != 2000 {
			t.Errorf("%s leads with %d pending", next.cfg.NodeID, next.store.Pending())
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A countedConn counts what is written to it.
type countedConn struct {
	net.Conn
	written *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// A follower without room for a snapshot takes no more of it than its beginning.
func TestSnapshot_thatIsRefusedIsNotSentToItsEnd(t *testing.T) {
	dir := smallMount(t)
	synctest.Test(t, func(t *testing.T) {
		const away = "n3"
		var written atomic.Int64
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.FlushBytes = 64 << 10
			cfg.Dial = dialer(cfg.Dial).through(away, func(c net.Conn) net.Conn { return countedConn{c, &written} })
		})
		c.dirs[away] = dir + "/" + away
		c.open("n1", "n2", away)
		n := c.leader()
		if n.cfg.NodeID == away {
			if err := n.TransferLeadership(t.Context()); err != nil {
				t.Fatal(err)
			}
			n = c.leader()
		}
		l := startLoad(t, n)
		c.agree()
		c.isolate(away)
		n = c.leader()
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		for range 100 {
			must(t, n, l.batch(20, 2000))
		}
		filler := fillUp(t, dir)
		written.Store(0)
		c.rejoin(away)
		time.Sleep(time.Minute)
		if got := c.nodes[away].Status().ReceiveError; got == "" {
			t.Fatal("no snapshot was refused, this tests nothing")
		}
		if got, size := written.Load(), int64(l.next)*2000; got > size {
			t.Errorf("%d bytes were sent in a minute of a schedule of %d that has no room", got, size)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		c.agree()
		c.closeAll() // before the disk is unmounted
	})
}
