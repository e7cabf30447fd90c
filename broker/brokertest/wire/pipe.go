// Package wire is a network in memory for clusters in virtual time. What one end writes waits in a
// buffer until the other one reads it, as with TCP: the writer goes on meanwhile. (With net.Pipe each
// write is a meeting of two goroutines, and meetings are most of what an idle virtual hour costs.)
package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// most is how many bytes are on their way in one direction at most.
const most = 64 << 10

// pipe returns the two ends of a connection to an address.
func pipe(to net.Addr) (dialed, accepted *conn) {
	there, back := newStream(), newStream()
	return newConn(back, there, to), newConn(there, back, to)
}

// A stream is one direction of a connection.
type stream struct {
	mu    sync.Mutex
	bytes []byte        // on their way
	done  bool          // nobody writes any more; what is on its way still arrives
	deaf  bool          // nobody reads any more
	ready chan struct{} // holds a token when the reader may go on
	room  chan struct{} // holds a token when the writer may go on
}

func newStream() *stream {
	return &stream{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take moves what is there to b. It returns nothing at all if there is nothing yet.
func (s *stream) take(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.deaf:
		return 0, net.ErrClosed
	case len(s.bytes) > 0:
		n := copy(b, s.bytes)
		s.bytes = s.bytes[n:]
		signal(s.room)
		return n, nil
	case s.done:
		return 0, io.EOF
	}
	return 0, nil
}

// put takes what there is room for.
func (s *stream) put(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
		return 0, net.ErrClosed
	case s.deaf:
		return 0, io.ErrClosedPipe
	}
	n := min(len(b), most-len(s.bytes))
	s.bytes = append(s.bytes, b[:n]...)
	signal(s.ready)
	return n, nil
}

// end says that nobody writes any more, or nobody reads, and lets both ends see it.
func (s *stream) end(writes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if writes {
		s.done = true
	} else {
		s.deaf, s.bytes = true, nil
	}
	signal(s.ready)
	signal(s.room)
}

// mostAtOnce is how many writes take no time, and then one takes a millisecond. After an election a Kafka client now and
// then fetches without a pause until the next look at metadata. On any real network time goes on meanwhile; here it would stand
// still, that look would never come, and the client would fetch for ever.
const mostAtOnce = 1000

// A conn is one end. One goroutine at a time may read, and one write.
type conn struct {
	in, out           *stream
	address           net.Addr
	readBy, writtenBy *deadline
	wrote             time.Time // when it last did
	writes            int       // at that time
}

func newConn(in, out *stream, address net.Addr) *conn {
	return &conn{in: in, out: out, address: address, readBy: newDeadline(), writtenBy: newDeadline()}
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		until := c.readBy.get()
		if isOver(until) {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		await(c.in.ready, c.readBy.moved, until)
	}
}

func (c *conn) Write(b []byte) (written int, err error) {
	if c.writes++; c.writes%mostAtOnce == 0 {
		time.Sleep(time.Millisecond)
	}
	if now := time.Now(); !now.Equal(c.wrote) {
		c.wrote, c.writes = now, 0
	}
	for {
		until := c.writtenBy.get()
		if isOver(until) {
			return written, os.ErrDeadlineExceeded
		}
		n, err := c.out.put(b[written:])
		if written += n; written == len(b) || err != nil {
			return written, err
		}
		await(c.out.room, c.writtenBy.moved, until)
	}
}

// Close lets the other end read what is on its way, and then io.EOF.
func (c *conn) Close() error {
	c.out.end(true)
	c.in.end(false)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.address }
func (c *conn) RemoteAddr() net.Addr { return c.address }

func (c *conn) SetReadDeadline(t time.Time) error  { c.readBy.set(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.writtenBy.set(t); return nil }

func (c *conn) SetDeadline(t time.Time) error {
	c.readBy.set(t)
	c.writtenBy.set(t)
	return nil
}

// A deadline is when a Read or a Write gives up; zero: never.
type deadline struct {
	mu    sync.Mutex
	at    time.Time
	moved chan struct{} // holds a token when at may have changed
}

func newDeadline() *deadline { return &deadline{moved: make(chan struct{}, 1)} }

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	signal(d.moved)
}

func (d *deadline) get() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

func isOver(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// await returns when there is a token in one of the channels, or the time has come.
func await(news, moved <-chan struct{}, until time.Time) {
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-news:
	case <-moved:
	case <-late:
	}
}
