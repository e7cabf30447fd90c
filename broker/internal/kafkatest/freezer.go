package kafkatest

import (
	"context"
	"net"
	"slices"
	"sync"
)

// A Freezer is a network on which Kafka brokers can be frozen: they still take connections, and what is written
// to them lies in their sockets until they thaw.
type Freezer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	frozen []string // addresses
	dials  map[string]int
	conns  map[*frozenConn]struct{}
}

type frozenConn struct {
	net.Conn
	freezer *Freezer
	address string

	mu   sync.Mutex // held by whoever writes to Conn
	held []byte
}

// NewFreezer returns a network on which dial opens the connections.
func NewFreezer(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Freezer {
	return &Freezer{dial: dial, conns: make(map[*frozenConn]struct{}), dials: make(map[string]int)}
}

// Dial opens a connection, to a frozen Kafka broker too.
func (f *Freezer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := f.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &frozenConn{Conn: conn, freezer: f, address: address}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[c] = struct{}{}
	f.dials[address]++
	return c, nil
}

func (c *frozenConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freezer.mu.Lock()
	frozen := slices.Contains(c.freezer.frozen, c.address)
	c.freezer.mu.Unlock()
	if frozen {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Freeze stops these Kafka brokers, and thaws all others.
func (f *Freezer) Freeze(addresses ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = addresses
	for c := range f.conns {
		if !slices.Contains(addresses, c.address) {
			go c.flush()
		}
	}
}

// Dialed returns how many connections to the Kafka broker were opened.
func (f *Freezer) Dialed(address string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials[address]
}

func (c *frozenConn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) > 0 {
		_, _ = c.Conn.Write(c.held)
		c.held = nil
	}
}
