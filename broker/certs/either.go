package certs

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
)

// recordHandshake is the first byte of every TLS connection: the type of a record that
// shakes hands. What nodes say to each other without TLS begins otherwise, and so does HTTP.
const recordHandshake = 0x16

// An eitherConn is one with TLS or without: the first byte that comes tells.
type eitherConn struct {
	net.Conn
	peers *Peers

	choosing sync.Mutex
	chosen   atomic.Pointer[net.Conn] // set once
}

// choose waits for the first byte, unless it was there. An error can be of a deadline, and
// is tried again by the next call.
func (c *eitherConn) choose() (net.Conn, error) {
	if chosen := c.chosen.Load(); chosen != nil {
		return *chosen, nil
	}
	c.choosing.Lock()
	defer c.choosing.Unlock()
	if chosen := c.chosen.Load(); chosen != nil {
		return *chosen, nil
	}
	var first [1]byte
	if _, err := c.Conn.Read(first[:]); err != nil {
		return nil, err
	}
	var chosen net.Conn = &begunConn{Conn: c.Conn, first: first[:]}
	if first[0] == recordHandshake {
		chosen = c.peers.ending(tls.Server(chosen, c.peers.server()), c.Conn)
	} else {
		c.peers.warn("accepted a connection without TLS: let the other side use it, then take tls.optional out", c.RemoteAddr().String())
	}
	c.chosen.Store(&chosen)
	return chosen, nil
}

func (c *eitherConn) Read(b []byte) (int, error) {
	chosen, err := c.choose()
	if err != nil {
		return 0, err
	}
	return chosen.Read(b)
}

func (c *eitherConn) Write(b []byte) (int, error) {
	chosen, err := c.choose()
	if err != nil {
		return 0, err
	}
	return chosen.Write(b)
}

// TLS returns the state of TLS on the connection, nil without it or before the first byte has come. A server of
// net/http knows only of a *tls.Conn what it is.
func (c *eitherConn) TLS() *tls.ConnectionState {
	chosen := c.chosen.Load()
	if chosen == nil {
		return nil
	}
	secure, ok := (*chosen).(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil
	}
	state := secure.ConnectionState()
	return &state
}

// Outdated is that of the connection below.
func (c *eitherConn) Outdated() bool {
	below, ok := c.Conn.(*trackedConn)
	return ok && below.Outdated()
}

// Close closes what was chosen, if the first byte has come.
func (c *eitherConn) Close() error {
	if chosen := c.chosen.Load(); chosen != nil {
		return (*chosen).Close()
	}
	return c.Conn.Close()
}

// A begunConn is one of which the first bytes were read already.
type begunConn struct {
	net.Conn
	first []byte
}

func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
