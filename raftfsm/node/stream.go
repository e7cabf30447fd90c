package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/repeats"
)

// Every connection begins with whom it is for. A member keeps its address when it
// is replaced, and raft goes on for a while sending to the id that was removed:
// without this the new disk would be given what was meant for the old one.
//
//	0xCA | version=1 | length, 2 bytes big endian | cluster name | 0 | raft id
const (
	greetingMagic   = 0xCA
	greetingVersion = 1
	maxGreeting     = 1 << 10
)

// streams is how nodes reach each other. It listens where the configuration
// says, calls itself by the address that the other members dial, and looks host
// names up at each dial. It closes every connection with it: raft's transport
// leaves those open that the other side keeps pooled.
type streams struct {
	net.Listener
	cfg     streamConfig
	refused *repeats.Subjects
	conns   map[net.Conn]bool // true: another node's, that has greeted
	closed  bool
	mu      sync.Mutex // guards conns and closed

	receiving atomic.Int32 // snapshots, by raft
	unwanted  atomic.Bool  // the rest of the present one
}

type streamConfig struct {
	cluster     string
	advertised  string // host:port
	dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	raftID      func() raft.ServerID   // ours, known once born
	succeededBy func(id raft.ServerID) // called when a greeting is for one that has our place
	patience    time.Duration          // for a greeting
	log         *slog.Logger
}

var _ raft.StreamLayer = (*streams)(nil)

func newStreams(l net.Listener, cfg streamConfig) *streams {
	return &streams{Listener: l, cfg: cfg, refused: repeats.New(), conns: map[net.Conn]bool{}}
}

// peerAt joins a Raft id and an address to what Dial takes.
func peerAt(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "=" + string(addr))
}

func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, addr, ok := strings.Cut(string(to), "=")
	if !ok {
		return nil, fmt.Errorf("dial %q: no raft id", to)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := s.cfg.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	t, err := s.track(c)
	if err != nil {
		return nil, err
	}
	err = t.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = t.Write(greeting(s.cfg.cluster, raft.ServerID(id)))
	}
	if err != nil {
		return nil, fmt.Errorf("greet %s: %w", id, errors.Join(err, t.Close()))
	}
	return t, nil
}

// Accept does not wait for the greeting: it is checked by the first Read.
func (s *streams) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t, err := s.track(c)
	if err != nil {
		return nil, err
	}
	return &acceptedConn{trackedConn: t}, nil
}

func (s *streams) track(c net.Conn) (*trackedConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	s.conns[c] = false
	return &trackedConn{Conn: c, streams: s}, nil
}

// mostGreeted bounds the connections of other nodes, of which each keeps a few: of nine nodes some fifty are open.
//
// Raft's transport waits with each request until raft's main loop takes it, with 256 KB and without looking at the
// connection. While a disk hangs, the loop waits for that; the leader gives each request up in time and sends it again on
// another connection, and what waits would grow for as long as the disk hangs: 466 connections and 120 MB where a sync took
// 70 s, in a run of the simulator.
const mostGreeted = 64

// admit counts a connection that has greeted, unless there are too many.
func (s *streams) admit(c *trackedConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	greeted := 0
	for _, has := range s.conns {
		if has {
			greeted++
		}
	}
	if greeted >= mostGreeted {
		return fmt.Errorf("%d are open and not closed by raft, which waits: see to the disk of this node", greeted)
	}
	if _, open := s.conns[c.Conn]; open {
		s.conns[c.Conn] = true
	}
	return nil
}

// Addr is the advertised address, a name that need not resolve here.
func (s *streams) Addr() net.Addr { return advertisedAddr(s.cfg.advertised) }

func (s *streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // the other side may have been first
	}
	return s.Listener.Close()
}

// slowestLink is the rate in bytes a second at which a request may still arrive: what
// raft allows a snapshot at its default time-out.
const slowestLink = 256 << 10

// A trackedConn gives a request more time as it grows: raft sets one deadline for all.
// One goroutine uses it at a time.
type trackedConn struct {
	net.Conn
	streams  *streams
	deadline time.Time // of the present request, as raft has set it
	written  int       // of it, bytes
}

// SetDeadline begins a request.
func (c *trackedConn) SetDeadline(at time.Time) error {
	c.deadline, c.written = at, 0
	return c.Conn.SetDeadline(at)
}

func (c *trackedConn) Write(b []byte) (int, error) {
	c.written += len(b)
	if more := time.Duration(c.written) * time.Second / slowestLink; !c.deadline.IsZero() && more > 10*time.Millisecond {
		if err := c.Conn.SetDeadline(c.deadline.Add(more)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

func (c *trackedConn) Close() error {
	c.streams.mu.Lock()
	delete(c.streams.conns, c.Conn)
	c.streams.mu.Unlock()
	return c.Conn.Close()
}

type acceptedConn struct {
	*trackedConn
	greeted bool // used by the reading goroutine only
	limited bool // by a deadline; the same
}

// Read ends as if nothing came when the connection is refused: raft would log any other error once more.
func (c *acceptedConn) Read(b []byte) (int, error) {
	if !c.greeted {
		if err := c.greet(); err != nil {
			c.streams.logRefused(c.RemoteAddr(), err)
			return 0, io.EOF
		}
		c.greeted = true
	}
	for {
		if c.streams.receiving.Load() > 0 && c.streams.unwanted.Load() {
			return 0, errors.Join(errRefused, c.Close())
		}
		n, err := c.read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if c.streams.receiving.Load() > 0 {
			return 0, errors.Join(fmt.Errorf("nothing came for %s while a snapshot is received", sendPatience), c.Close())
		}
	}
}

// refuse hangs up on who sends the snapshot that is received. Raft reads it to its end
// although nothing becomes of it, a hundred gigabytes perhaps, and again at the next
// attempt. Which connection it comes by is not known here: it is the one that is read
// next, or with bad luck one more, which is dialled again.
func (s *streams) refuse() { s.unwanted.Store(true) }

// read waits no longer than sendPatience while a snapshot is received. Raft's main loop
// reads it, and votes for nobody meanwhile: a leader whose machine loses its power
// would keep it from that until TCP gives up, one that hangs for ever. Other connections
// that are silent as long are dialled again.
func (c *acceptedConn) read(b []byte) (int, error) {
	limited := c.streams.receiving.Load() > 0
	if limited || c.limited {
		var deadline time.Time
		if limited {
			deadline = time.Now().Add(sendPatience)
		}
		if err := c.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		c.limited = limited
	}
	return c.Conn.Read(b)
}

// greet reads the greeting. Who connects and says nothing would stay for ever:
// raft sets no deadline on what it accepts.
func (c *acceptedConn) greet() error {
	if err := c.SetReadDeadline(time.Now().Add(c.streams.cfg.patience)); err != nil {
		return err
	}
	if err := c.streams.checkGreeting(c.Conn); err != nil {
		return err
	}
	if err := c.streams.admit(c.trackedConn); err != nil {
		return err
	}
	return c.SetReadDeadline(time.Time{})
}

// logRefused warns of a host and a cause once a minute: each attempt comes from
// another port, which the error of a read names too.
func (s *streams) logRefused(from net.Addr, err error) {
	host, _, _ := net.SplitHostPort(from.String()) // "" of what has no port: told apart by cause alone
	cause := err.Error()
	if op, ok := errors.AsType[*net.OpError](err); ok {
		cause = op.Err.Error()
	} else if errors.Is(err, errNoGreeting) {
		cause = errNoGreeting.Error() // whatever was sent instead
	}
	level := slog.LevelWarn
	if s.refused.Again(host + "\n" + cause) {
		level = slog.LevelDebug
	}
	s.cfg.log.Log(context.Background(), level, "raft connection refused", "from", from, "error", err)
}

func greeting(cluster string, id raft.ServerID) []byte {
	text := cluster + "\x00" + string(id)
	b := binary.BigEndian.AppendUint16([]byte{greetingMagic, greetingVersion}, uint16(len(text)))
	return append(b, text...)
}

func (s *streams) checkGreeting(r io.Reader) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint16(head[2:])
	if head[0] != greetingMagic || head[1] != greetingVersion || length > maxGreeting {
		return fmt.Errorf("%w of version %d: % x", errNoGreeting, greetingVersion, head)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	cluster, id, _ := strings.Cut(string(text), "\x00")
	ours := s.cfg.raftID()
	if cluster == s.cfg.cluster && raft.ServerID(id) == ours {
		return nil
	}
	if cluster == s.cfg.cluster && member.Succeeds(id, string(ours)) {
		s.cfg.succeededBy(raft.ServerID(id))
	}
	return fmt.Errorf("it is for %q of cluster %q, this is %q of %q", id, cluster, ours, s.cfg.cluster)
}

type advertisedAddr string

func (a advertisedAddr) Network() string { return "tcp" }
func (a advertisedAddr) String() string  { return string(a) }
