package kafkatest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Gate is a network on which requests can wait before Kafka takes them up, each when that before it on its connection is
// answered. Every request must have an answer, so nobody may write without wanting one. (What a control function of kfake
// holds back wakes when kfake is closed, and may then leave it with a lock that nobody gives back.)
type Gate struct {
	listen func(network, address string) (net.Listener, error)

	mu        sync.Mutex
	hold      func(Request) // nil: nothing waits
	listening int32
}

// A Request is one that a Kafka broker is about to take up.
type Request struct {
	Broker int32
	kmsg.Request
}

// NewGate returns a network on which listen opens the ports. Nothing waits yet.
func NewGate(listen func(network, address string) (net.Listener, error)) *Gate {
	return &Gate{listen: listen}
}

// Listen opens a port, that of broker 0 at first, then of broker 1, and so on.
func (g *Gate) Listen(network, address string) (net.Listener, error) {
	l, err := g.listen(network, address)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	broker := g.listening
	g.listening++
	return &gateListener{l, g, broker}, nil
}

// Hold has each request wait until hold has returned, and with it those behind it on its connection. It may block, and must
// return in the end also when the connection is closed. What one waits for already stays as it is. With nil nothing waits.
func (g *Gate) Hold(hold func(Request)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = hold
}

// await returns when the request may be taken up.
func (g *Gate) await(broker int32, frame []byte) {
	g.mu.Lock()
	hold := g.hold
	g.mu.Unlock()
	if hold == nil {
		return
	}
	if request := decode(frame); request != nil {
		hold(Request{broker, request})
	}
}

type gateListener struct {
	net.Listener
	gate   *Gate
	broker int32
}

// Accept returns Kafka's side of the next connection.
func (l *gateListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &gateConn{Conn: conn, listener: l, frames: make(chan []byte, socketHolds), idle: make(chan struct{}, 1), closed: make(chan struct{})}
	c.idle <- struct{}{}
	go c.receive()
	return c, nil
}

// socketHolds is how many requests lie in a socket before who sends another has to wait: more than any client sends without
// an answer to the first.
const socketHolds = 32

// A gateConn is Kafka's side of a connection. One goroutine at a time may read.
type gateConn struct {
	net.Conn
	listener *gateListener
	frames   chan []byte // requests in the socket; closed when no more come
	failed   error       // why not; set before frames is closed
	left     []byte      // of the request that Kafka reads

	idle   chan struct{} // holds a token while no request is without an answer
	once   sync.Once
	closed chan struct{} // by Kafka
}

// receive puts into the socket what is sent, also while a request waits: a client must not have to wait with it when it sends.
func (c *gateConn) receive() {
	defer close(c.frames)
	for {
		frame := make([]byte, 4)
		if _, c.failed = io.ReadFull(c.Conn, frame); c.failed != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		if _, c.failed = io.ReadFull(c.Conn, frame[4:]); c.failed != nil {
			return
		}
		select {
		case c.frames <- frame:
		case <-c.closed:
			c.failed = net.ErrClosed
			return
		}
	}
}

// Read has Kafka take up the next request when it is time. What was sent before the client closed the connection is
// taken up all the same. That nothing more comes Kafka sees at once, as it does of a socket.
func (c *gateConn) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		frame, err := c.next()
		if err != nil {
			return 0, err
		}
		c.listener.gate.await(c.listener.broker, frame)
		c.left = frame
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

// next returns the next request when that before it is answered.
func (c *gateConn) next() (frame []byte, err error) {
	more := false
	select {
	case frame, more = <-c.frames:
	case <-c.closed:
		return nil, net.ErrClosed
	}
	if !more {
		return nil, c.failed
	}
	select {
	case <-c.idle:
		return frame, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Write sends an answer, which kfake writes at once.
func (c *gateConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil {
		c.idle <- struct{}{}
	}
	return n, err
}

// Close closes the connection; what lies in the socket is gone.
func (c *gateConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// decode returns the request of a frame, and nil if it is none.
func decode(frame []byte) kmsg.Request {
	reader := kbin.Reader{Src: frame[4:]}
	key, version := reader.Int16(), reader.Int16()
	reader.Int32()          // by which the answer is known
	reader.NullableString() // the client
	request := kmsg.RequestForKey(key)
	if request == nil {
		return nil
	}
	request.SetVersion(version)
	if request.IsFlexible() {
		kmsg.SkipTags(&reader)
	}
	if !reader.Ok() || request.ReadFrom(reader.Src) != nil {
		return nil
	}
	return request
}
