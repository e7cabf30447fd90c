package wire

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// A Network is where ports are listened at. All hosts are one: who means what host is its user's business.
type Network struct {
	mu        sync.Mutex
	listeners map[int]*listener
}

// NewNetwork returns a network on which nobody listens.
func NewNetwork() *Network { return &Network{listeners: make(map[int]*listener)} }

// A listener belongs to one port. Its address is that of all its connections.
type listener struct {
	network     *Network
	port        int
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

// Listen listens at the port of a host:port, as net.Listen does.
func (n *Network) Listen(_, address string) (net.Listener, error) {
	port, err := portOf(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[port] != nil {
		return nil, fmt.Errorf("listen on %s: port %d is taken", address, port)
	}
	l := &listener{network: n, port: port, connections: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[port] = l
	return l, nil
}

// DialContext connects to who listens at the port of a host:port. It waits until the connection is
// accepted, or ctx ends.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	port, err := portOf(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	n.mu.Lock()
	l := n.listeners[port]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: nobody listens", address)
	}
	dialed, accepted := pipe(l.Addr())
	select {
	case l.connections <- accepted:
		return dialed, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: nobody listens any more", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func portOf(address string) (int, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, l.port)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }
