package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/broker/reload"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// following is a node that n1, at the address, leads.
func following(address string) *fakeNode {
	return &fakeNode{
		status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: []broker.MemberStatus{{ID: "n1", API: address}, {ID: "n2"}}},
		desk:   query.New(oneMessage{}, follows{}),
	}
}

func handlerOf(n *fakeNode) http.Handler {
	return NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
}

const schedules = `{"topic":"orders.delay","id":"a/b c","deliver_after":"1h"}`

func TestForward_comesFromTheLeaderWhole(t *testing.T) {
	leader := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	server := httptest.NewServer(handlerOf(leader))
	defer server.Close()
	follower := handlerOf(following(server.Listener.Addr().String()))
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/v1/messages", schedules},
		{"POST", "/v1/messages", `{"topic":"orders"}`},
		{"PUT", "/v1/messages/orders.delay/a%2Fb%20c%2e%2E", `{"deliver_after":"1h"}`},
		{"DELETE", "/v1/messages/orders.delay/%3Fx?reason=a%26b", ""},
		{"GET", "/v1/messages?topic=orders.delay&prefix=order%2D", ""},
		{"GET", "/v1/messages/orders.delay/order-8", ""},
		{"GET", "/v1/messages/orders.delay/order-7", ""},
		{"GET", "/v1/count", ""},
	} {
		want := send(handlerOf(leader), test.method, test.path, test.body)
		got := send(follower, test.method, test.path, test.body)
		if got.Code != want.Code || got.Body.String() != want.Body.String() || got.Header().Get("Content-Type") != want.Header().Get("Content-Type") || got.Header().Get("ETag") != want.Header().Get("ETag") {
			t.Errorf("%s %s: %d %v %s, the leader says %d %v %s", test.method, test.path, got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
		}
	}
	ids := map[string]int{}
	for _, o := range leader.orders.asked {
		ids[o.Entry.ID]++
	}
	for _, id := range []string{"a/b c", "a/b c..", "?x"} {
		if ids[id] != 2 {
			t.Errorf("the leader was asked for %v, want twice %q", ids, id)
		}
	}
}

func TestForward_isDoneOnce(t *testing.T) {
	other := following("127.0.0.1:1")
	server := httptest.NewServer(handlerOf(other))
	defer server.Close()
	got := send(handlerOf(following(server.Listener.Addr().String())), "POST", "/v1/messages", schedules)
	var p problem
	if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != http.StatusServiceUnavailable || p.Code != client.CodeNotLeader || got.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
}

func TestForward_isNotNeededForStaleReads(t *testing.T) {
	h := handlerOf(following("127.0.0.1:1"))
	for path, want := range map[string]int{"/v1/messages?stale=true": 200, "/v1/count?stale=true": 200, "/v1/messages/orders.delay/order-7?stale=true": 200, "/v1/count?stale=1": 200, "/v1/count?stale=T": 200, "/v1/count": 503, "/v1/count?stale=false": 503, "/v1/count?stale=0": 503} {
		for _, method := range []string{"GET", "HEAD"} {
			if got := send(h, method, path, ""); got.Code != want {
				t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
			}
		}
	}
}

// A condition that the header Connection names is one of the request, which the leader would take without it.
func TestForward_keepsConditionsThatConnectionNames(t *testing.T) {
	leader := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	server := httptest.NewServer(handlerOf(leader))
	defer server.Close()
	follower := handlerOf(following(server.Listener.Addr().String()))
	for _, test := range []struct{ method, body, header, value string }{
		{"DELETE", "", "If-Match", `"42"`},
		{"PUT", `{"deliver_after":"1h"}`, "If-None-Match", "*"},
		{"PUT", `{"deliver_after":"1h"}`, "Idempotency-Key", "a key"},
	} {
		leader.orders.asked = nil
		got := send(follower, test.method, "/v1/messages/orders.delay/a", test.body, test.header, test.value, "Connection", test.header)
		asked := leader.orders.asked
		if got.Code != http.StatusOK || len(asked) != 1 || asked[0].If == raftfsm.Always && asked[0].Once == nil {
			t.Errorf("%s: %d %s, asked %+v", test.header, got.Code, got.Body, asked)
		}
	}
}

// What was not sent was not done; what was sent and not answered may have been.
func TestForward_saysWhatMayHaveBeenDone(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	address := gone.Listener.Addr().String()
	gone.Close()
	dies, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dies.Close()
	go func() {
		for {
			conn, err := dies.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024)) // the request
			_ = conn.Close()
		}
	}()
	for _, test := range []struct {
		address, method, path string
		status                int
		code                  client.Code
		says                  string
	}{
		{address, "POST", "/v1/messages", 503, client.CodeUnavailable, "correct its api address"},
		{address, "GET", "/v1/count", 503, client.CodeUnavailable, "correct its api address"},
		{dies.Addr().String(), "POST", "/v1/messages", 504, client.CodeInDoubt, "it may have taken effect"},
		{dies.Addr().String(), "DELETE", "/v1/messages/orders.delay/a", 504, client.CodeInDoubt, "it may have taken effect"},
		{dies.Addr().String(), "GET", "/v1/count", 503, client.CodeUnavailable, "nothing was done"},
	} {
		got := send(handlerOf(following(test.address)), test.method, test.path, map[string]string{"POST": schedules}[test.method])
		var p problem
		if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != test.status || p.Code != test.code || !strings.Contains(p.Detail, test.says) {
			t.Errorf("%s %s: %d %s", test.method, test.path, got.Code, got.Body)
		}
	}
}

// A page of the follower's own origin was judged there: the leader, at another host, must not take it for
// one of others.
func TestForward_takesPagesOfItsOwnOrigin(t *testing.T) {
	leader := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	server := httptest.NewServer(handlerOf(leader))
	defer server.Close()
	request := httptest.NewRequest("POST", "http://n2.example/v1/messages", strings.NewReader(schedules))
	request.Header.Set("Origin", "http://n2.example")
	answer := httptest.NewRecorder()
	handlerOf(following(server.Listener.Addr().String())).ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// A stream that is passed on comes line by line.
func TestForward_passesStreamsOn(t *testing.T) {
	leader := httptest.NewServer(handlerOf(&fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}))
	defer leader.Close()
	follower := httptest.NewServer(handlerOf(following(leader.Listener.Addr().String())))
	defer follower.Close()
	request, err := http.NewRequestWithContext(t.Context(), "GET", follower.URL+"/v1/messages", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", ndjsonType)
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines != 2 || !bytes.HasSuffix(text, []byte("\n{\"end\":true}\n")) || answer.Header.Get("Content-Type") != ndjsonType {
		t.Errorf("%v, %v: %s", err, answer.Header, text)
	}
}

// The time that a node has for one answer does not cut what takes longer, part by part.
func TestForward_givesAStreamTimeWithEachPart(t *testing.T) {
	leader := httptest.NewServer(handlerOf(&fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}))
	defer leader.Close()
	request := httptest.NewRequest("GET", "/v1/messages", nil)
	request.Header.Set("Accept", ndjsonType)
	answer := &hastyRecorder{ResponseRecorder: httptest.NewRecorder()}
	handlerOf(following(leader.Listener.Addr().String())).ServeHTTP(answer, request)
	if text := answer.Body.String(); !strings.HasSuffix(text, "\n{\"end\":true}\n") {
		t.Errorf("%d %s", answer.Code, text)
	}
}

// A leader that has no tokens cannot tell what a token that a follower passes on allows: it refuses it, where it
// takes whoever shows none.
func TestForward_isRefusedWithATokenThatTheLeaderCannotCheck(t *testing.T) {
	n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	leader := httptest.NewServer(handlerOf(n))
	defer leader.Close()
	d := newDoor(t)
	d.node.status = following(leader.Listener.Addr().String()).status
	narrow := d.create(access.Grant{Name: "olga", Role: access.Operator, Topics: []string{"orders.*"}})
	got := send(d.handler(), "DELETE", "/v1/messages/orders.delay/a", "", "Authorization", "Bearer "+narrow)
	if got.Code != http.StatusUnauthorized || !strings.Contains(got.Body.String(), CodeTokenUnknown) || !strings.Contains(got.Body.String(), "give it the api.tokens") || len(n.orders.asked) > 0 {
		t.Errorf("%d %s, asked %+v", got.Code, got.Body, n.orders.asked)
	}
	if got := send(handlerOf(following(leader.Listener.Addr().String())), "DELETE", "/v1/messages/orders.delay/a", ""); got.Code != http.StatusOK || len(n.orders.asked) != 1 {
		t.Errorf("without a token: %d %s", got.Code, got.Body)
	}
}

// A hastyRecorder takes one part of an answer for each time that it is given.
type hastyRecorder struct {
	*httptest.ResponseRecorder
	inTime bool
}

// SetWriteDeadline is for http.ResponseController.
func (r *hastyRecorder) SetWriteDeadline(time.Time) error {
	r.inTime = true
	return nil
}

func (r *hastyRecorder) Write(part []byte) (int, error) {
	if !r.inTime {
		return 0, os.ErrDeadlineExceeded
	}
	r.inTime = false
	return r.ResponseRecorder.Write(part)
}

// Where nodes show certificates the leader is told who asks, and not shown the token: it believes a node,
// and nobody else.
func TestForward_vouchesForTheCaller(t *testing.T) {
	var got http.Header
	leader := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer leader.Close()
	d := newDoor(t)
	d.node.status = following(leader.Listener.Addr().String()).status
	token := d.create(access.Grant{Name: "anna", Role: access.Operator, Topics: []string{"orders.*"}})
	follower := NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens, Leader: Caller{Vouches: true}}, quiet())
	send(follower, "DELETE", "/v1/messages/orders.delay/a", "", "Authorization", "Bearer "+token, callerHeader, writeCaller(access.Everything("mallory")))
	if got.Get("Authorization") != "" || got.Get(callerHeader) == "" || got.Get(forwardedHeader) != "n2" {
		t.Fatalf("the leader is shown %v", got)
	}
	said := got.Get(callerHeader)
	send(handlerOf(following(leader.Listener.Addr().String())), "DELETE", "/v1/messages/orders.delay/a", "", "Authorization", "Bearer "+token, callerHeader, said)
	if got.Get("Authorization") != "Bearer "+token || got.Get(callerHeader) != "" {
		t.Errorf("without certificates the leader is shown %v", got)
	}

	member := &tls.ConnectionState{ServerName: "of a member"}
	d = newDoor(t)
	d.create(access.Grant{Name: "somebody", Role: access.Viewer})
	leads := NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens, Member: func(s *tls.ConnectionState) bool { return s == member }}, slog.New(slog.NewTextHandler(&d.log, nil)))
	for _, test := range []struct {
		what, path, said string
		over             *tls.ConnectionState
		want             int
	}{
		{"a member", "/v1/messages/orders.delay/a", said, member, http.StatusOK},
		{"a member, of another topic", "/v1/messages/bills.delay/a", said, member, http.StatusForbidden},
		{"a member, who says nothing", "/v1/messages/orders.delay/a", "", member, http.StatusUnauthorized},
		{"a member, who stammers", "/v1/messages/orders.delay/a", "{}", member, http.StatusUnauthorized},
		{"somebody with TLS", "/v1/messages/orders.delay/a", said, &tls.ConnectionState{}, http.StatusUnauthorized},
		{"somebody", "/v1/messages/orders.delay/a", said, nil, http.StatusUnauthorized},
	} {
		request := httptest.NewRequest("DELETE", test.path, nil)
		request.TLS = test.over
		request.Header.Set(callerHeader, test.said)
		answer := httptest.NewRecorder()
		if leads.ServeHTTP(answer, request); answer.Code != test.want {
			t.Errorf("%s: %d %s", test.what, answer.Code, answer.Body)
		}
	}
	if !strings.Contains(d.log.String(), "who=anna") {
		t.Errorf("the log does not say who wrote:\n%s", &d.log)
	}
	d.anon = true
	request := httptest.NewRequest("DELETE", "/v1/messages/orders.delay/a", nil)
	request.Header.Set(callerHeader, said)
	answer := httptest.NewRecorder()
	if d.handler().ServeHTTP(answer, request); answer.Code != http.StatusUnauthorized || !strings.Contains(answer.Body.String(), "not known to this one as a member") {
		t.Errorf("somebody who is nobody, where callers need no token: %d %s", answer.Code, answer.Body)
	}
}

// Node by node certificates are asked for, and TLS is brought in: who vouches already is believed by who does
// not yet.
func TestForward_isBelievedWhileNodesAreChangedOneByOne(t *testing.T) {
	ca, err := certs.NewAuthority("ours", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	names := map[string][]string{}
	peers := func(id string, asks, optional bool) *certs.Peers {
		pair, err := ca.Issue([]string{id}, time.Now(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		paths := certs.Paths{Cert: write(id+".pem", pair.Cert), Key: write(id+".key", pair.Key), CA: write("ca.pem", ca.Cert)}
		if asks {
			paths.ClientCA = paths.CA
		}
		keeper, err := reload.Open("api.tls", paths.Files(), paths.Read, quiet())
		if err != nil {
			t.Fatal(err)
		}
		return certs.NewPeers(certs.Options{Bundle: keeper, Names: names, Optional: optional, Logger: quiet()})
	}
	for _, leads := range []struct {
		what           string
		asks, optional bool
	}{{"asks for certificates", true, false}, {"asks for none yet", false, false}, {"takes requests without TLS still", true, true}, {"does both", false, true}} {
		n1, n2 := peers("n1", leads.asks, leads.optional), peers("n2", true, false)
		d := newDoor(t)
		d.create(access.Grant{Name: "nobody", Role: access.Viewer})
		leader := NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens, Anonymous: true, Member: n1.IsMember}, quiet())
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		names[l.Addr().String()], names["n2.example:1"] = []string{"n1"}, []string{"n2"}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- Serve(ctx, n1.Over(l), leader, quiet()) }()

		follows := newDoor(t)
		follows.node.status = following(l.Addr().String()).status
		anna := follows.create(access.Grant{Name: "anna", Role: access.Operator, Topics: []string{"orders.*"}})
		follower := NewHandler(follows.node, prometheus.NewRegistry(), Callers{Tokens: follows.tokens, Leader: Caller{Dial: n2.Dial, Vouches: true}}, quiet())
		for _, test := range []struct {
			path string
			want int
		}{{"/v1/messages", http.StatusOK}, {"/v1/messages?topic=orders.delay", http.StatusOK}} {
			method, body := "GET", ""
			if test.path == "/v1/messages" {
				method, body = "POST", schedules
			}
			if got := send(follower, method, test.path, body, "Authorization", "Bearer "+anna, "Content-Type", "application/json"); got.Code != test.want {
				t.Errorf("the leader %s, %s %s: %d %s", leads.what, method, test.path, got.Code, got.Body)
			}
		}
		// Whoever anna may not be is refused by the leader, too: it takes her for nobody else.
		got := send(follower, "POST", "/v1/messages", strings.Replace(schedules, "orders.delay", "bills.delay", 1), "Authorization", "Bearer "+anna, "Content-Type", "application/json")
		if got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), "of anna") {
			t.Errorf("the leader %s, of another topic: %d %s", leads.what, got.Code, got.Body)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}
