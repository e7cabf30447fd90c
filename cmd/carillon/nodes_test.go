package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/api"
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
