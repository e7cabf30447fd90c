package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

// behindProxy serves the API of two nodes below /carillon/ of another host, which takes that off: of a leader, and of
// a follower below /carillon/follower/.
func behindProxy(t *testing.T, leads *fakeNode) (base string) {
	t.Helper()
	leader := httptest.NewServer(handlerOf(leads))
	t.Cleanup(leader.Close)
	follower := httptest.NewServer(handlerOf(following(leader.Listener.Addr().String())))
	t.Cleanup(follower.Close)
	proxy := http.NewServeMux()
	for prefix, to := range map[string]string{"/carillon": leader.URL, "/carillon/follower": follower.URL} {
		target, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		proxy.Handle(prefix+"/", http.StripPrefix(prefix, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}))
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL + "/carillon"
}

// Programs reach all of the API below a path that a proxy takes off, also ids with a slash in them, streams, and
// what a follower passes on.
func TestPrefix_takesPrograms(t *testing.T) {
	leads := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	base := behindProxy(t, leads)
	for _, endpoint := range []string{base, base + "/", base + "/follower"} {
		admin, err := client.NewAdmin([]string{endpoint}, client.AdminOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		ctx := context.Background()
		before := len(leads.orders.asked)
		if _, err := admin.Schedule(ctx, client.ScheduleRequest{Topic: "orders.delay", ID: "a/b ..", DeliverAfter: "1h"}); err != nil {
			t.Errorf("%s: schedule: %v", endpoint, err)
		}
		if _, err := admin.Cancel(ctx, client.Name{Topic: "orders.delay", ID: "a/b .."}, "why/not"); err != nil {
			t.Errorf("%s: cancel: %v", endpoint, err)
		}
		for _, o := range leads.orders.asked[before:] {
			if o.Entry.ID != "a/b .." {
				t.Errorf("%s: the leader was asked for %q", endpoint, o.Entry.ID)
			}
		}
		if len(leads.orders.asked) != before+2 {
			t.Errorf("%s: the leader was asked %d times", endpoint, len(leads.orders.asked)-before)
		}
		if life, err := admin.Get(ctx, "orders.delay", "order-7"); err != nil || life.Message == nil {
			t.Errorf("%s: get: %+v %v", endpoint, life, err)
		}
		if _, err := admin.Get(ctx, "orders.delay", "order-8"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: get of nothing: %v", endpoint, err)
		}
		count := 0
		for _, err := range admin.Messages(ctx, client.Filter{}) {
			if count++; err != nil {
				t.Errorf("%s: list: %v", endpoint, err)
			}
		}
		if c, err := admin.Count(ctx, client.Filter{}); count != 1 || err != nil {
			t.Errorf("%s: %d listed, %+v counted, %v", endpoint, count, c, err)
		}
		if s, err := admin.Status(ctx); err != nil || s.Leader != "n1" {
			t.Errorf("%s: status: %+v %v", endpoint, s, err)
		}
	}
}

// throughNginx serves what nodes do that are asked at the address, as the example of the documentation says, and
// returns the base of it. The socket is handed to nginx, so that nobody has to wait until it listens.
func throughNginx(t *testing.T, address string) (base string) {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("%v: run make needs", err)
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```nginx\n")
	example, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(example, "127.0.0.1:7401") {
		t.Fatalf("no example of nginx: %q", example)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	directory := t.TempDir()
	temporary := ""
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s/%s;\n", of, directory, of)
	}
	configuration := fmt.Sprintf("daemon off; pid %s/pid; error_log stderr;\nevents {}\nhttp {\naccess_log off;\n%sserver {\nlisten %s;\n%s}\n}\n",
		directory, temporary, listener.Addr(), strings.ReplaceAll(example, "127.0.0.1:7401", address))
	file := filepath.Join(directory, "nginx.conf")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	process := exec.Command(nginx, "-p", directory, "-e", "stderr", "-c", file)
	process.Env = append(os.Environ(), "NGINX=3;")
	process.ExtraFiles = []*os.File{socket}
	process.Stderr = t.Output()
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM) // which its worker hears of, too
		_ = process.Wait()
	})
	return fmt.Sprintf("http://%s/carillon", listener.Addr())
}

// An id stays what it is behind the proxy that the documentation shows: decoded on the way, that of one topic
// would name a message of another.
func TestPrefix_isTakenOffByTheNginxOfTheDocumentation(t *testing.T) {
	leads := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	node := httptest.NewServer(handlerOf(leads))
	defer node.Close()
	admin, err := client.NewAdmin([]string{throughNginx(t, node.Listener.Addr().String())}, client.AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ids := []string{"plain", "a/b ü", "..", "../bills.delay/a", "x/../../bills.delay/a", "a%2Fb", "a?b#c&d+e", "a//b"}
	for _, id := range ids {
		if _, err := admin.Cancel(t.Context(), client.Name{Topic: "orders.delay", ID: id}, "why/not?"); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	var asked []string
	for _, o := range leads.orders.asked {
		asked = append(asked, o.Entry.Topic+" "+o.Entry.ID)
	}
	for i, id := range ids {
		ids[i] = "orders.delay " + id
	}
	if !slices.Equal(asked, ids) {
		t.Errorf("the node was asked for %q, want %q", asked, ids)
	}
}

// No answer sends a browser or a program out of the prefix, or to another host: what the document says is relative to it,
// and there is neither a redirect nor a header that lets pages of other origins read.
func TestPrefix_isLeftByNothing(t *testing.T) {
	base := behindProxy(t, &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}})
	at, err := url.Parse(base + specPath)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := regexp.MustCompile(`https?://[^"\s\\]*`)
	transport := &http.Transport{DisableKeepAlives: true}
	for _, path := range []string{specPath, "/v1/messages", "/v1/messages/orders.delay/order-7", "/v1/messages/", "/v1", "/", "//v1/messages", "/v1/../v1/messages", "/docs", "/v1/operations"} {
		request, err := http.NewRequest("GET", base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", "https://elsewhere.example")
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode/100 == 3 && !strings.HasPrefix(answer.Header.Get("Location"), "/carillon/") {
			t.Errorf("%s: %v, %d to %q", path, err, answer.StatusCode, answer.Header.Get("Location"))
		}
		for name := range answer.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: says %s", path, name)
			}
		}
		if found := elsewhere.FindAll(text, -1); len(found) > 0 {
			t.Errorf("%s: names %q", path, found)
		}
		if path != specPath {
			continue
		}
		var document struct{ Servers []struct{ URL string } }
		if err := json.Unmarshal(text, &document); err != nil || len(document.Servers) != 1 {
			t.Fatalf("%v, servers %+v", err, document.Servers)
		}
		server, err := at.Parse(document.Servers[0].URL)
		if err != nil || strings.TrimRight(server.String(), "/") != base {
			t.Errorf("the document at %s leads to %v, %v", at, server, err)
		}
	}
}
