package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/certs"
)

// What comes of a node decides whether the next one is asked.
func TestNodes_areAskedInTurn(t *testing.T) {
	cutOff := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("ask: %w", &url.Error{Op: "Post", URL: "http://a:1", Err: ctx.Err()})
	}
	send := func(ctx context.Context) {
		if trace := httptrace.ContextClientTrace(ctx); trace != nil {
			trace.WroteHeaders()
		}
	}
	standsStill := func(ctx context.Context) error {
		send(ctx)
		return cutOff(ctx)
	}
	refuses := func(ctx context.Context) error {
		send(ctx)
		return &api.Error{Code: 503, Message: "there is no leader"}
	}
	all, one := []string{"a:1", "b:1", "c:1"}, []string{"a:1"}
	for _, tt := range []struct {
		name           string
		a              func(context.Context) error
		reads, changes []string // who is asked
	}{
		{"it is off", cutOff, all, all},
		{"its certificate is strange", func(context.Context) error { return errors.New("unknown authority") }, all, all},
		{"it stands still", standsStill, all, one},
		{"it refuses", refuses, one, one},
	} {
		for verb, want := range map[string][]string{"read": tt.reads, "change": tt.changes} {
			t.Run(tt.name+", "+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), askTimeout)
					defer cancel()
					var asked []string
					question := func(ctx context.Context, node *api.Client) error {
						if asked = append(asked, node.Address()); node.Address() == "c:1" {
							return nil
						}
						return tt.a(ctx)
					}
					var err error
					if verb == "read" {
						err = nodes{addresses: all}.ask(ctx, question)
					} else {
						flags := nodeFlags{addresses: all}
						err = flags.ask(ctx, askTimeout, question)
					}
					if !slices.Equal(asked, want) || (err == nil) != (len(want) == len(all)) {
						t.Errorf("asked %v, want %v: %v", asked, want, err)
					}
				})
			})
		}
	}
}

// Who signed it is not what is wrong with a certificate that has ended.
func TestVerbs_sayThatACertificateHasEnded(t *testing.T) {
	for lag, want := range map[time.Duration]string{
		-48 * time.Hour: ", ended at ",
		48 * time.Hour:  " on only, correct this machine's clock, or wait: ",
		0:               "",
	} {
		at := time.Now().Add(lag)
		ca, err := certs.NewAuthority("ours", time.Now().Add(-240*time.Hour), 480*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := ca.Issue([]string{"127.0.0.1"}, at, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		trusted := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(trusted, ca.Cert, 0o600); err != nil {
			t.Fatal(err)
		}
		node := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"node":"n2","state":"leader","leader":"n2","term":1}`)
		}))
		node.TLS = &tls.Config{Certificates: []tls.Certificate{shown}}
		node.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that clients end
		node.StartTLS()
		verbs := []string{"status", "list"}
		if want == "" {
			verbs = verbs[:1] // the other would wait for an answer that this node does not know
		}
		for _, verb := range verbs {
			var out strings.Builder
			args := append(strings.Fields(verb), "--api", strings.TrimPrefix(node.URL, "https://"), "--ca-file", trusted)
			run(t.Context(), args, strings.NewReader(""), &out, &out)
			if want == "" {
				if strings.Contains(out.String(), "certificate") {
					t.Errorf("%s of one that is valid: %s", verb, out.String())
				}
				continue
			}
			if !strings.Contains(out.String(), "carillon: the certificate of CN=127.0.0.1, by which 127.0.0.1:") || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "--ca-file") {
				t.Errorf("%s of one of %v: %s, want %q", verb, at, out.String(), want)
			}
		}
		node.Close()
	}
}

// off returns an address at which no connection is made or refused, as that of a machine without power: the kernel
// drops what comes where too many wait already.
func off(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(socket, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("this kernel takes connections that nobody accepts, however many")
	return ""
}

func TestVerbs_goOnBehindAMachineThatIsOff(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for what does not come")
	}
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			io.WriteString(w, `{"code":"cancelled","topic":"orders.delay","id":"a","seq":"7"}`)
			return
		}
		io.WriteString(w, `{"node":"n2","state":"leader","leader":"n2","term":1}`)
	}))
	defer node.Close()
	nodes := off(t) + "," + strings.TrimPrefix(node.URL, "http://")
	for _, verb := range []string{"status", "cancel --topic orders.delay a"} {
		var out strings.Builder
		if code := run(t.Context(), append(strings.Fields(verb), "--api", nodes), strings.NewReader(""), &out, &out); code != 0 {
			t.Errorf("%s: exit code %d: %s", verb, code, out.String())
		}
	}
}
