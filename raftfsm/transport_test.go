package raftfsm

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wires are the connections of a cluster: they note when they were written to, and may lose all for a moment of
// each second.
type wires struct {
	mu    sync.Mutex
	heard map[string][]time.Time // by the address that was dialed
	loses time.Duration
}

// retransmission is how long TCP waits for an answer before it sends a packet again, and what that takes.
const retransmission = 210 * time.Millisecond

func (l *wires) tune(cfg *Config) {
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, wires: l, addr: addr}, nil
	}
}

type wire struct {
	net.Conn
	*wires
	addr string
}

func (l *wire) Write(b []byte) (int, error) {
	l.mu.Lock()
	now, loses := time.Now(), l.loses
	l.heard[l.addr] = append(l.heard[l.addr], now)
	l.mu.Unlock()
	if now.Sub(now.Truncate(time.Second)) < loses {
		time.Sleep(retransmission)
	}
	return l.Conn.Write(b)
}

// An idle leader says no more than its followers need to know that it is there: each word wakes two processes.
func TestCluster_idlesWithFewWords(t *testing.T) {
	const span = time.Minute
	synctest.Test(t, func(t *testing.T) {
		l := &wires{heard: map[string][]time.Time{}}
		c := newCluster(t, 3, l.tune)
		c.open("n1", "n2", "n3")
		n := c.leader()
		time.Sleep(10 * time.Second) // they know each other
		l.mu.Lock()
		clear(l.heard)
		l.mu.Unlock()
		time.Sleep(span)
		if c.leader() != n {
			t.Error("leadership changed hands")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.heard) != 2 {
			t.Fatalf("%d followers were written to", len(l.heard))
		}
		for addr, times := range l.heard {
			var longest time.Duration
			for i := range len(times) - 1 {
				longest = max(longest, times[i+1].Sub(times[i]))
			}
			t.Logf("%s: %d words, %v apart at most", addr, len(times), longest)
			if len(times) > int(4*span/defaultHeartbeat) || longest > defaultHeartbeat/2 {
				t.Errorf("%s: %d words in %v, %v apart at most: want no more than four in a time-out of %v, and no gap of more than half of it", addr, len(times), span, longest, defaultHeartbeat)
			}
		}
	})
}

// What is lost comes late by more than half of the time-out. The next word comes by another connection.
func TestCluster_keepsItsLeaderThoughPacketsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &wires{heard: map[string][]time.Time{}}
		c := newCluster(t, 3, l.tune)
		c.open("n1", "n2", "n3")
		n := c.leader()
		time.Sleep(10 * time.Second)
		term := n.Status().Term
		l.mu.Lock()
		l.loses = 40 * time.Millisecond
		l.mu.Unlock()
		time.Sleep(30 * time.Minute)
		if again := c.leader(); again != n || n.Status().Term != term {
			t.Errorf("term %d became %d", term, again.Status().Term)
		}
	})
}
