package raftfsm

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// streams is how nodes reach each other. It listens where the configuration
// says, calls itself by the address that the other members dial, and looks host
// names up at each dial. It closes every connection with it: raft's transport
// leaves those open that the other side keeps pooled.
type streams struct {
	net.Listener
	advertised string
	dial       func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

var _ raft.StreamLayer = (*streams)(nil)

func newStreams(l net.Listener, advertised string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *streams {
	return &streams{Listener: l, advertised: advertised, dial: dial, conns: map[net.Conn]struct{}{}}
}

func (s *streams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := s.dial(ctx, "tcp", string(addr))
	if err != nil {
		return nil, err
	}
	return s.track(c)
}

func (s *streams) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.track(c)
}

func (s *streams) track(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	s.conns[c] = struct{}{}
	return &trackedConn{Conn: c, streams: s}, nil
}

// Addr is the advertised address, a name that need not resolve here.
func (s *streams) Addr() net.Addr { return advertisedAddr(s.advertised) }

func (s *streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	return s.Listener.Close()
}

type trackedConn struct {
	net.Conn
	streams *streams
}

func (c *trackedConn) Close() error {
	c.streams.mu.Lock()
	delete(c.streams.conns, c.Conn)
	c.streams.mu.Unlock()
	return c.Conn.Close()
}

type advertisedAddr string

func (a advertisedAddr) Network() string { return "tcp" }
func (a advertisedAddr) String() string  { return string(a) }
