package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/config"
)

// A site is a node's folder of certificates and its configuration, in the time of a bubble.
type site struct {
	t      *testing.T
	dir    string
	config config.Config
	log    lockedBuffer
	watched
}

// A lockedBuffer is written by the node's goroutines and read by the test.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func inSite(t *testing.T, then func(s *site)) {
	dir := t.TempDir() // not in the bubble: it is removed after it
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, dir: dir}
		s.watched.log, s.metrics = slog.New(slog.NewTextHandler(&s.log, nil)), prometheus.NewRegistry()
		s.config.Node.ID = "n1"
		s.config.Cluster.Members = []config.Member{{ID: "n1", Raft: "a.example:1", API: "a.example:2"}, {ID: "n2", Raft: "b.example:1", API: "b.example:2"}}
		s.config.Raft.TLS = config.RaftTLS{Cert: s.path("n1.pem"), Key: s.path("n1.key"), CA: s.path("ca.pem")}
		s.config.API.TLS = config.APITLS{Cert: s.path("n1.pem"), Key: s.path("n1.key"), CA: s.path("ca.pem")}
		s.config.API.AllowUnauthenticated = true
		then(s)
	})
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name string, text ...[]byte) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), bytes.Join(text, nil), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) authority() certs.Pair {
	s.t.Helper()
	ca, err := certs.NewAuthority("ours", time.Now(), 365*24*time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	return ca
}

// shows has the node show a certificate of the authority that lasts so long.
func (s *site) shows(ca certs.Pair, lasts time.Duration) {
	s.t.Helper()
	pair, err := ca.Issue([]string{"n1"}, time.Now(), lasts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("n1.pem", pair.Cert)
	s.write("n1.key", pair.Key)
}

// start opens what the node watches, and watches it for the rest of the test.
func (s *site) start() error {
	if _, err := raftPeers(&s.watched, s.config); err != nil {
		return err
	}
	if _, err := apiAccess(&s.watched, s.config); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.t.Cleanup(stop)
	go s.run(ctx)
	return nil
}

// logs returns how many lines have all of these.
func (s *site) logs(parts ...string) (n int) {
	synctest.Wait()
lines:
	for line := range strings.Lines(s.log.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// A certificate that the other nodes refuse changes nothing; authorities are exchanged in the order that is documented.
func TestCertificates_thatPeersRefuseDoNotComeIntoForce(t *testing.T) {
	inSite(t, func(s *site) {
		before, after := s.authority(), s.authority()
		s.write("ca.pem", before.Cert)
		s.shows(before, 60*24*time.Hour)
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		taken := func(what string, want int) {
			t.Helper()
			time.Sleep(15 * time.Second)
			for _, key := range []string{"raft.tls", "api.tls"} {
				if n := s.logs("changed file is in force", "key="+key); n != want {
					t.Errorf("%s: %d changes of %s are in force, want %d; log:\n%s", what, n, key, want, &s.log)
				}
			}
		}
		s.shows(after, 60*24*time.Hour)
		taken("one of an authority that nobody trusts", 0)
		if n := s.logs("cannot be used", "n1.pem: by the authorities in ", "put its authority into that file first"); n != 2 {
			t.Errorf("%d lines say so, want one for raft.tls and one for api.tls:\n%s", n, &s.log)
		}
		s.shows(before, 60*24*time.Hour)
		taken("one of the authority from before", 1)
		s.write("ca.pem", before.Cert, after.Cert)
		taken("both authorities", 2)
		s.shows(after, 60*24*time.Hour)
		taken("one of the new authority", 3)
		s.write("ca.pem", after.Cert)
		taken("the new authority alone", 4)
	})
}

func TestCertificates_thatPeersRefuseKeepANodeFromStarting(t *testing.T) {
	for _, test := range []struct {
		what   string
		change func(c *config.Config)
		want   string
	}{
		{"for Raft", func(*config.Config) {}, "raft.tls: "},
		{"for the API", func(c *config.Config) { c.Raft.TLS = config.RaftTLS{} }, "api.tls: "},
		{"for the API, callers asked for certificates alone", func(c *config.Config) {
			c.Raft.TLS, c.API.TLS.CA, c.API.TLS.ClientCA = config.RaftTLS{}, "", c.API.TLS.CA
		}, "api.tls: "},
		{"for the API, by the authorities of the system", func(c *config.Config) { c.Raft.TLS, c.API.TLS.CA = config.RaftTLS{}, "" }, ""},
		{"for the API of a node that is alone", func(c *config.Config) {
			c.Raft.TLS, c.Cluster.Members = config.RaftTLS{}, c.Cluster.Members[:1]
		}, ""},
	} {
		inSite(t, func(s *site) {
			s.write("ca.pem", s.authority().Cert)
			s.shows(s.authority(), 60*24*time.Hour)
			test.change(&s.config)
			err := s.start()
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want+s.path("n1.pem")+": by the authorities in ") {
				t.Errorf("%s: %v, want %q", test.what, err, test.want)
			}
		})
	}
}

// One that is in force is judged again as time passes: it is a problem before it ends, and stays one until it is replaced.
func TestCertificates_thatEndAreAProblem(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority()
		s.write("ca.pem", ca.Cert)
		s.shows(ca, 22*time.Minute) // and the hour before: the last 20 minutes and a half are late
		ends := time.Now().Add(22 * time.Minute)
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		told := func(what, says string, lines int) {
			t.Helper()
			problems := s.trouble()
			want := []string{"raft.tls: " + s.path("n1.pem") + ": the certificate " + says, "api.tls: " + s.path("n1.pem") + ": the certificate " + says}
			for i, problem := range problems {
				if says == "" || len(problems) != len(want) || !strings.HasPrefix(problem, want[i]) {
					t.Errorf("%s: problem %q, want %q", what, problem, says)
				}
			}
			if says != "" && len(problems) == 0 {
				t.Errorf("%s: no problem, want %q", what, says)
			}
			if n := s.logs("level=WARN", "certificate ends", "n1.pem"); n != lines {
				t.Errorf("%s: %d lines, want %d:\n%s", what, n, lines, &s.log)
			}
		}
		told("at first", "", 0)
		time.Sleep(time.Minute)
		told("before the last quarter", "", 0)
		time.Sleep(2 * time.Minute)
		told("in the last quarter", "ends at "+ends.UTC().Format(time.RFC3339)+", and who dials refuses it then: put a new one", 2)
		time.Sleep(18 * time.Minute)
		told("just before its end", "ends at ", 2)
		time.Sleep(3 * time.Minute)
		told("after its end", "ended at "+ends.UTC().Format(time.RFC3339)+", and who dials refuses it: put a new one", 4)
		s.shows(ca, 24*time.Hour)
		time.Sleep(time.Minute)
		told("a new one", "", 4)
	})
}
