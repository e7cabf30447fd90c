package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/reload"
	"github.com/carillonmq/carillon/raftfsm"
)

// A secured is a cluster whose nodes reach each other by TLS, as their files say, which are
// watched. It notes how each connection begins.
type secured struct {
	*cluster
	dir      string
	plain    map[string]bool // nodes without TLS
	optional map[string]bool

	mu     sync.Mutex
	begun  map[byte]int // connections by their first byte
	closed int          // connections that were

	logs map[string]*bytes.Buffer
	stop map[string]func() // ends the watching of a node's files
}

// tlsRecord and greetingMagic are how connections begin with TLS and without.
const tlsRecord = 0x16

func newSecured(t testing.TB, size int) *secured {
	s := &secured{dir: t.TempDir(), plain: map[string]bool{}, optional: map[string]bool{}, begun: map[byte]int{}, stop: map[string]func(){}, logs: map[string]*bytes.Buffer{}}
	s.cluster = newCluster(t, size, s.tune)
	t.Cleanup(func() {
		for _, stop := range s.stop {
			stop()
		}
	})
	return s
}

func (s *secured) authority(name string) certs.Pair {
	s.t.Helper()
	ca, err := certs.NewAuthority(name, time.Now(), 24*365*time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	return ca
}

func (s *secured) issue(ca certs.Pair, names ...string) certs.Pair {
	s.t.Helper()
	pair, err := ca.Issue(names, time.Now(), 24*time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	return pair
}

// give puts the files of a node there: what it shows, and whom it trusts.
func (s *secured) give(id string, shown certs.Pair, trusted ...certs.Pair) {
	s.t.Helper()
	var cas []byte
	for _, ca := range trusted {
		cas = append(cas, ca.Cert...)
	}
	for name, text := range map[string][]byte{".pem": shown.Cert, ".key": shown.Key, ".ca": cas} {
		if err := os.WriteFile(filepath.Join(s.dir, id+name), text, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *secured) tune(cfg *Config) {
	id, dial := cfg.NodeID, cfg.Dial
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &begin{Conn: c, s: s}, err
	}
	if s.plain[id] {
		return
	}
	paths := certs.Paths{Cert: filepath.Join(s.dir, id+".pem"), Key: filepath.Join(s.dir, id+".key"), CA: filepath.Join(s.dir, id+".ca")}
	paths.ClientCA = paths.CA
	s.logs[id] = &bytes.Buffer{}
	log := slog.New(slog.NewTextHandler(s.logs[id], nil))
	keeper, err := reload.Open("raft.tls", paths.Files(), paths.Read, log)
	if err != nil {
		s.t.Fatal(err)
	}
	names := map[string][]string{}
	for _, m := range s.members {
		host, _, _ := net.SplitHostPort(m.Raft)
		names[m.Raft] = []string{m.ID, host}
	}
	peers := certs.NewPeers(certs.Options{Bundle: keeper, Names: names, OnlyMembers: true, Optional: s.optional[id], Listen: cfg.Listen, Dial: cfg.Dial, Logger: log})
	cfg.Listen, cfg.Dial = peers.Listen, peers.Dial
	if stop := s.stop[id]; stop != nil {
		stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop[id] = cancel
	go keeper.Run(ctx)
	go peers.Run(ctx)
}

// A begin notes the first byte that is written. To write to who has hung up fails as it does with TCP, not with a pipe.
type begin struct {
	net.Conn
	s    *secured
	once sync.Once
	end  sync.Once
}

func (b *begin) Write(p []byte) (int, error) {
	b.once.Do(func() {
		b.s.mu.Lock()
		b.s.begun[p[0]]++
		b.s.mu.Unlock()
	})
	n, err := b.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

func (b *begin) Close() error {
	b.end.Do(func() {
		b.s.mu.Lock()
		b.s.closed++
		b.s.mu.Unlock()
	})
	return b.Conn.Close()
}

func (s *secured) counts() (tls, plain, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun[tlsRecord], s.begun[greetingMagic], s.closed
}

// under proposes a command every 500 ms until what is done beside it has ended, and fails when one fails.
func (s *secured) under(l *load, n *Node, do func()) {
	s.t.Helper()
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(500 * time.Millisecond):
			}
			if _, err := n.Propose(context.Background(), raftfsm.Command(l.batch(1, 100))).Wait(context.Background()); err != nil {
				s.t.Errorf("a proposal: %v", err)
				return
			}
		}
	})
	do()
	close(end)
	done.Wait()
}

// An authority is changed in three steps, as the handbook says, and nobody is restarted.
func TestCluster_takesAnotherAuthorityUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, 3)
		before, after := s.authority("before"), s.authority("after")
		for _, m := range s.members {
			s.give(m.ID, s.issue(before, m.ID), before)
		}
		s.open("n1", "n2", "n3")
		n := s.leader()
		term, l := n.Status().Term, startLoad(t, n)
		s.under(l, n, func() {
			for _, step := range []func(id string){
				func(id string) { s.give(id, s.issue(before, id), before, after) },
				func(id string) { s.give(id, s.issue(after, id), before, after) },
				func(id string) { s.give(id, s.issue(after, id), after) },
			} {
				_, _, was := s.counts()
				for _, m := range s.members {
					step(m.ID)
				}
				time.Sleep(70 * time.Second)
				if _, _, closed := s.counts(); closed-was < 2 {
					t.Errorf("%d connections from before were closed", closed-was)
				}
			}
		})
		if again := s.leader(); again != n || n.Status().Term != term {
			t.Errorf("leadership changed: term %d became %d", term, again.Status().Term)
		}
		if tls, plain, _ := s.counts(); plain != 0 || tls < 6 {
			t.Errorf("%d connections with TLS, %d without", tls, plain)
		}
		s.agree()
	})
}

// Who the authority signs for is no member by that, and one of another authority is none either.
func TestCluster_keepsOutWhoShowsTheWrongCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, shows := range map[string]func(s *secured, ca certs.Pair) certs.Pair{
			"of another authority": func(s *secured, _ certs.Pair) certs.Pair { return s.issue(s.authority("foreign"), "n3") },
			"of another name":      func(s *secured, ca certs.Pair) certs.Pair { return s.issue(ca, "n4", "n4.test") },
		} {
			s := newSecured(t, 3)
			ca := s.authority("ours")
			s.give("n1", s.issue(ca, "n1"), ca)
			s.give("n2", s.issue(ca, "n2.test"), ca) // by its host
			s.give("n3", shows(s, ca), ca)
			s.open("n1", "n2", "n3")
			time.Sleep(10 * time.Second)
			n := s.leader()
			if n == s.nodes["n3"] {
				t.Errorf("%s: it leads", name)
			}
			l := startLoad(t, n)
			must(t, n, l.batch(10, 100))
			time.Sleep(10 * time.Second)
			if at, want := s.nodes["n3"].store.State().AppliedIndex, n.store.State().AppliedIndex; at >= want {
				t.Errorf("%s: it has applied %d of %d", name, at, want)
			}
			s.give("n3", s.issue(ca, "n3"), ca)
			time.Sleep(time.Minute)
			s.agree()
			s.closeAll()
		}
	})
}

// Each node is restarted twice; whoever has come how far, the group has a leader and loses nothing.
func TestCluster_goesFromPlainToTLSNodeByNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, 3)
		ca := s.authority("ours")
		for _, m := range s.members {
			s.give(m.ID, s.issue(ca, m.ID), ca)
			s.plain[m.ID] = true
		}
		s.open("n1", "n2", "n3")
		l := startLoad(t, s.leader())
		restart := func(id string) {
			s.close(id)
			s.open(id)
			must(t, s.leader(), l.batch(10, 100))
			s.agree()
		}
		for _, m := range s.members {
			s.plain[m.ID], s.optional[m.ID] = false, true
			restart(m.ID)
		}
		for _, m := range s.members {
			s.optional[m.ID] = false
			restart(m.ID)
		}
		s.mu.Lock()
		clear(s.begun)
		s.mu.Unlock()
		for _, m := range s.members {
			restart(m.ID)
		}
		if tls, plain, _ := s.counts(); plain != 0 || tls == 0 {
			t.Errorf("at the end there were %d connections with TLS, %d without", tls, plain)
		}
	})
}
