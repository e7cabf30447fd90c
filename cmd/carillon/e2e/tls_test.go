package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
)

// Certificates, and then the authority, are exchanged while programs schedule and get over HTTPS: no request fails, no
// node is started again, the leader leads on, and new connections are shown the new certificates.
func TestTLS_isRenewedUnderLoad(t *testing.T) {
	t.Parallel()
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(1, delayTopic, targetTopic)
	c := newCarillon(t, k.addrs(), dirs(t, 3)...)
	for _, n := range c.nodes {
		n.Certs, n.Heartbeat = t.TempDir(), "2s" // a busy machine is no reason for an election
	}
	c.configure()
	old, next := newAuthority(t, c), newAuthority(t, c)
	for _, n := range c.nodes {
		old.issue(n)
		n.trust(t, old.certificate())
	}
	c.launch()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(old.certificate())
	pool.AppendCertsFromPEM(next.certificate())
	kept, fresh := c.secureAdmin(pool, false), c.secureAdmin(pool, true)
	await(t, 2*patience, "a schedule by id", func() bool {
		_, err := kept.Schedule(t.Context(), client.ScheduleRequest{Topic: delayTopic, ID: "first", DeliverAfter: "24h"})
		return err == nil
	})
	before, err := kept.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var done, failed atomic.Int64
	for number := range 4 {
		admin := []*client.Admin{kept, fresh}[number%2]
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", number, i)
				_, err := admin.Schedule(context.Background(), client.ScheduleRequest{Topic: delayTopic, ID: id, DeliverAfter: "24h", IdempotencyKey: id})
				if err == nil {
					_, err = admin.Get(context.Background(), delayTopic, id)
				}
				if err != nil {
					failed.Add(1)
					t.Errorf("%s: %v", id, err)
				}
				done.Add(1)
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	more := func(what string) {
		t.Helper()
		begun := done.Load()
		await(t, patience, "requests after: "+what, func() bool { return done.Load() >= begun+20 })
	}
	more("the start")

	first := c.shown(pool)
	for _, n := range c.nodes {
		old.issue(n)
	}
	await(t, patience, "renewed certificates are shown", func() bool { return differ(first, c.shown(pool)) })
	more("renewed certificates")

	c.trust(append(old.certificate(), next.certificate()...))
	more("both authorities are trusted")
	second := c.shown(pool)
	for _, n := range c.nodes {
		next.issue(n)
	}
	await(t, patience, "certificates of the new authority are shown", func() bool { return differ(second, c.shown(pool)) })
	more("certificates of the new authority")
	c.trust(next.certificate())
	more("the old authority is gone")

	// Who trusts the old authority alone trusts nobody any more, and no session is resumed that was begun before.
	alone := x509.NewCertPool()
	alone.AppendCertsFromPEM(old.certificate())
	for _, n := range c.nodes {
		if conn, err := tls.Dial("tcp", n.API, &tls.Config{RootCAs: alone}); err == nil {
			conn.Close()
			t.Errorf("%s still shows a certificate of the old authority", n.ID)
		}
	}
	// What cannot be used changes nothing, and is told.
	bad := c.nodes[0]
	replaceFile(t, filepath.Join(bad.Certs, bad.ID+".pem"), []byte("no certificate"))
	reader := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer reader.CloseIdleConnections()
	await(t, patience, "the metric of a bad file", func() bool {
		answer, err := reader.Get("https://" + bad.API + "/metrics")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return err == nil && bytes.Contains(text, []byte(`carillon_reload_failing{key="api.tls"} 1`))
	})
	more("a bad file")
	stop()
	running.Wait()
	after, err := kept.Status(t.Context())
	if err != nil || after.Term != before.Term || after.Leader != before.Leader {
		t.Errorf("%s led in term %d, and then %s in term %d (%v)", before.Leader, before.Term, after.Leader, after.Term, err)
	}
	t.Logf("%d schedules and gets, %d failed", done.Load(), failed.Load())
}

// An authority signs certificates for the nodes of a cluster.
type authority struct {
	c   *carillonCluster
	dir string
}

func newAuthority(t *testing.T, c *carillonCluster) *authority {
	a := &authority{c, t.TempDir()}
	run(t, ".", nil, c.binary, "cert", "init", "--dir", a.dir)
	return a
}

func (a *authority) certificate() []byte {
	a.c.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.dir, "ca.pem"))
	if err != nil {
		a.c.t.Fatal(err)
	}
	return text
}

// issue gives the node a new certificate.
func (a *authority) issue(n *carillonNode) {
	a.c.t.Helper()
	run(a.c.t, ".", nil, a.c.binary, "cert", "node", n.ID, "--dir", a.dir, "--config", n.config)
	for _, suffix := range []string{".key", ".pem"} {
		text, err := os.ReadFile(filepath.Join(a.dir, n.ID+suffix))
		if err != nil {
			a.c.t.Fatal(err)
		}
		replaceFile(a.c.t, filepath.Join(n.Certs, n.ID+suffix), text)
	}
}

// trust gives the node another file of authorities.
func (n *carillonNode) trust(t testing.TB, authorities []byte) {
	t.Helper()
	replaceFile(t, filepath.Join(n.Certs, "ca.pem"), authorities)
}

// replaceFile puts a file that only its owner reads into the place of another, in one step.
func replaceFile(t testing.TB, path string, text []byte) {
	t.Helper()
	err := os.WriteFile(path+".next", text, 0o600)
	if err == nil {
		err = os.Rename(path+".next", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// secureAdmin returns a program's that trusts these, which may make a connection for each request.
func (c *carillonCluster) secureAdmin(trusted *x509.CertPool, fresh bool) *client.Admin {
	c.t.Helper()
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, "https://"+n.API)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, ClientSessionCache: tls.NewLRUClientSessionCache(0)}, DisableKeepAlives: fresh}
	admin, err := client.NewAdmin(addresses, client.AdminOptions{Transport: transport})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(admin.Close)
	return admin
}

// shown returns the certificates that the nodes show, which resume no session.
func (c *carillonCluster) shown(trusted *x509.CertPool) (all [][]byte) {
	c.t.Helper()
	sessions := tls.NewLRUClientSessionCache(0)
	for _, n := range c.nodes {
		for range 2 {
			conn, err := tls.Dial("tcp", n.API, &tls.Config{RootCAs: trusted, ClientSessionCache: sessions})
			if err != nil {
				c.t.Fatalf("dial %s: %v", n.ID, err)
			}
			_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: "+n.API+"\r\nConnection: close\r\n\r\n")
			_, _ = io.ReadAll(conn) // a ticket would come before this
			state := conn.ConnectionState()
			conn.Close()
			if state.DidResume {
				c.t.Errorf("%s resumed a session", n.ID)
			}
			if len(all) > 0 && bytes.Equal(all[len(all)-1], state.PeerCertificates[0].Raw) {
				continue
			}
			all = append(all, state.PeerCertificates[0].Raw)
		}
	}
	return all
}

// differ reports whether no certificate is in both.
func differ(some, others [][]byte) bool {
	for _, one := range some {
		for _, other := range others {
			if bytes.Equal(one, other) {
				return false
			}
		}
	}
	return true
}

// trust gives all nodes another file of authorities, and waits until it is in force, for Raft and for the API.
func (c *carillonCluster) trust(authorities []byte) {
	c.t.Helper()
	for _, n := range c.nodes {
		taken := func(key string) int {
			return strings.Count(string(tail(n.process.log, 1<<24)), `msg="changed file is in force" component=reload key=`+key)
		}
		ofRaft, ofAPI := taken("raft.tls"), taken("api.tls")
		n.trust(c.t, authorities)
		await(c.t, patience, n.ID+" takes other authorities", func() bool { return taken("raft.tls") > ofRaft && taken("api.tls") > ofAPI })
	}
}
