package certs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/broker/reload"
)

// A site is a network of nodes n1, n2 and n3 at localhost:1, localhost:2 and localhost:3, in
// the time of a bubble.
type site struct {
	t       *testing.T
	network kfake.VirtualNetwork
	log     bytes.Buffer
	logger  *slog.Logger
	stop    []func()
}

func inSite(t *testing.T, then func(s *site)) {
	dir := t.TempDir() // not in the bubble: it is removed after it
	t.Setenv("SITE", dir)
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t}
		s.logger = slog.New(slog.NewTextHandler(&s.log, nil))
		then(s)
		for _, stop := range s.stop {
			stop()
		}
		time.Sleep(time.Minute) // what is still to be written has no reader any more
	})
}

// logged returns the log, once nobody writes to it.
func (s *site) logged() string {
	synctest.Wait()
	return s.log.String()
}

// pass lets time pass.
func (s *site) pass(d time.Duration) { time.Sleep(d) }

func (s *site) authority(name string) Pair {
	s.t.Helper()
	ca, err := NewAuthority(name, time.Now(), 24*365*time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	return ca
}

func (s *site) issue(ca Pair, lasts time.Duration, names ...string) Pair {
	s.t.Helper()
	pair, err := ca.Issue(names, time.Now(), lasts)
	if err != nil {
		s.t.Fatal(err)
	}
	return pair
}

// write puts the files of a node there.
func (s *site) write(node string, ca, shown Pair) Paths {
	s.t.Helper()
	path := func(name string) string { return filepath.Join(os.Getenv("SITE"), node+name) }
	for name, text := range map[string][]byte{".ca": ca.Cert, ".pem": shown.Cert, ".key": shown.Key} {
		if err := os.WriteFile(path(name), text, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return Paths{Cert: path(".pem"), Key: path(".key"), CA: path(".ca"), ClientCA: path(".ca")}
}

var names = map[string][]string{"localhost:1": {"n1", "one.example"}, "localhost:2": {"n2", "two.example", "10.0.0.2"}, "localhost:3": {"n_3"}}

// node opens the peers of one with these files, which are watched until the site ends.
func (s *site) node(paths Paths, change func(*Options)) *Peers {
	s.t.Helper()
	keeper, err := reload.Open("raft.tls", paths.Files(), paths.Read, s.logger)
	if err != nil {
		s.t.Fatal(err)
	}
	o := Options{Bundle: keeper, Names: names, OnlyMembers: true, Listen: s.listen, Dial: s.dial, Logger: s.logger}
	if change != nil {
		change(&o)
	}
	p := NewPeers(o)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = append(s.stop, cancel)
	go keeper.Run(ctx)
	go p.Run(ctx)
	return p
}

// echo answers at the address with what it is sent, and says by the channel why a connection ended.
func (s *site) echo(l net.Listener, err error) <-chan error {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	s.stop = append(s.stop, func() { l.Close() })
	ends := make(chan error, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				ends <- err
			}()
		}
	}()
	return ends
}

// talk dials and has a word echoed.
func talk(p *Peers, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := p.Dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return say(c)
}

func say(c net.Conn) error {
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	var back [4]byte
	_, err := io.ReadFull(c, back[:])
	return err
}

// A roomyConn takes what is written at once, as a socket does and a pipe does not: both sides
// may write first.
type roomyConn struct {
	net.Conn
	queue chan []byte // nil is the end
	once  sync.Once
}

func roomy(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	r := &roomyConn{Conn: c, queue: make(chan []byte, 1000)}
	go func() {
		defer c.Close()
		for b := range r.queue {
			if b == nil {
				return
			}
			c.Write(b)
		}
	}()
	return r, nil
}

func (c *roomyConn) Write(b []byte) (int, error) {
	c.queue <- bytes.Clone(b)
	return len(b), nil
}

func (c *roomyConn) Close() error {
	c.once.Do(func() {
		c.Conn.SetDeadline(time.Now().Add(time.Second))
		c.queue <- nil
	})
	return nil
}

func (s *site) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return roomy(s.network.DialContext(ctx, network, addr))
}

func (s *site) listen(network, addr string) (net.Listener, error) {
	l, err := s.network.Listen(network, addr)
	return roomyListener{l}, err
}

type roomyListener struct{ net.Listener }

func (l roomyListener) Accept() (net.Conn, error) { return roomy(l.Listener.Accept()) }
