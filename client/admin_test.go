package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeNode answers in turn, with the last answer for ever, and remembers what it was asked.
type fakeNode struct {
	mu      sync.Mutex
	answers []func(http.ResponseWriter, *http.Request)
	asked   []string
}

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	body, _ := io.ReadAll(r.Body)
	line := r.Method + " " + r.URL.RequestURI()
	for _, name := range []string{"If-Match", "Authorization", "Accept"} {
		if v := r.Header.Get(name); v != "" {
			line += " " + name + ": " + v
		}
	}
	n.asked = append(n.asked, strings.TrimSpace(line+" "+strings.TrimSpace(string(body))))
	answer := n.answers[min(len(n.asked), len(n.answers))-1]
	n.mu.Unlock()
	answer(w, r)
}

func (n *fakeNode) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// says answers with the text, a success.
func says(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, text)
	}
}

func streams(lines ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		io.WriteString(w, strings.Join(lines, "\n")+"\n")
	}
}

// refuses answers with a problem.
func refuses(status int, code Code) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: "because " + string(code), Seq: 41})
	}
}

// breaks ends the connection in the middle of an answer, or before one if there is no text.
func breaks(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		if text != "" {
			w.Header().Set("Content-Type", "application/x-ndjson")
			io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// bubbled carries requests to handlers by host without a socket, so that time in a bubble goes on. A host
// without a handler refuses connections.
type bubbled map[string]http.Handler

func (b bubbled) RoundTrip(r *http.Request) (*http.Response, error) {
	handler := b[r.URL.Host]
	if handler == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		server, user := net.Pipe()
		go http.Serve(&oneConn{conn: server}, handler)
		return user, nil
	}}
	return transport.RoundTrip(r)
}

// A oneConn is a listener that accepts one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

type answer = func(http.ResponseWriter, *http.Request)

func TestAdmin_asksAsTheContractSays(t *testing.T) {
	node := &fakeNode{answers: []answer{says(`{
		"code":"scheduled","topic":"orders.delay","id":"a/b ..","seq":"41","answers":[{"answer":{"code":"scheduled","topic":"t","id":"i","seq":"41"}}],"index":"1","count":"1","buckets":[],
		"places":[],"events":[],"changed":true,"verb":"cancel","state":"finished","operations":[],"offset":"2","node":"n1"}`)}}
	server := httptest.NewServer(node)
	defer server.Close()
	admin, err := NewAdmin([]string{server.URL + "/prefix/"}, AdminOptions{Token: StaticToken("carillon_x")})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx := t.Context()
	name := Name{Topic: "orders.delay", ID: "a/b ..", Seq: 41}
	letter := Position{Topic: "carillon.dead-letter", Partition: 1, Offset: 2}
	const path = "/prefix/v1/messages/orders%2Edelay/a%2Fb%20%2E%2E"
	for _, tt := range []struct {
		ask  func() error
		want string
	}{
		{func() error {
			_, err := admin.Schedule(ctx, ScheduleRequest{Topic: "orders.delay", DeliverAfter: "1h", Value: Text("<x>")})
			return err
		}, `POST /prefix/v1/messages Authorization: Bearer carillon_x {"topic":"orders.delay","deliver_after":"1h","value":{"text":"<x>"}}`},
		{func() error { _, err := admin.ScheduleBatch(ctx, []ScheduleRequest{{Topic: "t"}}); return err }, `POST /prefix/v1/batches Authorization: Bearer carillon_x {"messages":[{"topic":"t"}]}`},
		{func() error { _, err := admin.Cancel(ctx, name, "why not"); return err }, `DELETE ` + path + `?reason=why+not If-Match: "41" Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Change(ctx, name, ChangeRequest{DeliverTo: "bills"}); return err }, `PATCH ` + path + ` If-Match: "41" Authorization: Bearer carillon_x {"deliver_to":"bills"}`},
		{func() error { _, err := admin.Now(ctx, Name{Topic: name.Topic, ID: name.ID}, ""); return err }, `POST ` + path + `/now Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Get(ctx, "orders.delay", "a/b .."); return err }, `GET ` + path + ` Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Stale().Get(ctx, "t", "i"); return err }, `GET /prefix/v1/messages/t/i?stale=true Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Explain(ctx, "t", "i"); return err }, `GET /prefix/v1/explain?id=i&topic=t Authorization: Bearer carillon_x`},
		{func() error {
			_, err := admin.Count(ctx, Filter{Topic: "t", Prefix: "p", Target: "o", From: 1, To: 2, States: []string{"parked", "paused"}})
			return err
		}, `GET /prefix/v1/count?from=1&prefix=p&state=parked&state=paused&target=o&to=2&topic=t Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Histogram(ctx, Filter{}, []int64{5, 70}, true); return err }, `GET /prefix/v1/histogram?bounds=5%2C70&by=target Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Topics(ctx); return err }, `GET /prefix/v1/topics Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Targets(ctx); return err }, `GET /prefix/v1/targets Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Pauses(ctx); return err }, `GET /prefix/v1/status Authorization: Bearer carillon_x`},
		{func() error {
			_, err := admin.Pause(ctx, Pause{Kind: PauseTarget, Name: "orders", Who: "anna", Why: "stock"})
			return err
		}, `POST /prefix/v1/targets/orders/pause Authorization: Bearer carillon_x {"who":"anna","why":"stock"}`},
		{func() error { _, err := admin.Resume(ctx, Pause{Kind: PauseTopic, Name: "orders.delay"}); return err }, `POST /prefix/v1/topics/orders%2Edelay/resume Authorization: Bearer carillon_x {}`},
		{func() error {
			_, err := admin.StartOperation(ctx, OperationRequest{Verb: OperationCancel, Filter: Filter{Topic: "t"}, Reason: "r"})
			return err
		}, `POST /prefix/v1/operations Authorization: Bearer carillon_x {"verb":"cancel","filter":{"topic":"t"},"reason":"r"}`},
		{func() error { _, err := admin.Operation(ctx, "7"); return err }, `GET /prefix/v1/operations/7 Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Operations(ctx); return err }, `GET /prefix/v1/operations Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.StopOperation(ctx, "7", "enough"); return err }, `POST /prefix/v1/operations/7/stop?reason=enough Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.DeadLetter(ctx, letter); return err }, `GET /prefix/v1/dead-letters/carillon%2Edead-letter/1/2 Authorization: Bearer carillon_x`},
		{func() error { _, err := admin.Replay(ctx, letter, ReplayRequest{DeliverTo: "bills"}); return err }, `POST /prefix/v1/dead-letters/carillon%2Edead-letter/1/2/replay Authorization: Bearer carillon_x {"deliver_to":"bills"}`},
	} {
		err := tt.ask()
		asked := node.requests()
		if got := asked[len(asked)-1]; err != nil || got != tt.want {
			t.Errorf("error %v, asked\n%s, want\n%s", err, got, tt.want)
		}
	}
}

// What may be sent to another node, and what may not, since it may have been carried out.
func TestAdmin_repeatsWhatIsSafe(t *testing.T) {
	ok := says(`{"code":"scheduled","topic":"t","id":"i","seq":"7"}`)
	plain := ScheduleRequest{Topic: "t", ID: "i", DeliverAfter: "1h"}
	keyed, absent, present, exactly := plain, plain, plain, plain
	keyed.IdempotencyKey, absent.If, present.If, exactly.If = "k", ConditionAbsent, ConditionPresent, "41"
	schedule := func(r ScheduleRequest) func(*Admin) error {
		return func(a *Admin) error { _, err := a.Schedule(context.Background(), r); return err }
	}
	cancel := func(seq uint64) func(*Admin) error {
		return func(a *Admin) error {
			_, err := a.Cancel(context.Background(), Name{Topic: "t", ID: "i", Seq: seq}, "")
			return err
		}
	}
	get := func(a *Admin) error { _, err := a.Get(context.Background(), "t", "i"); return err }
	operation := func(a *Admin) error {
		_, err := a.StartOperation(context.Background(), OperationRequest{Verb: OperationCancel, Filter: Filter{Topic: "t"}, Reason: "r"})
		return err
	}
	unavailable, late, conflict := refuses(503, CodeUnavailable), refuses(409, CodeTooLate), refuses(412, CodeConflict)
	gateway := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	inJSON := func(text string) answer {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGatewayTimeout)
			io.WriteString(w, text)
		}
	}
	for _, tt := range []struct {
		name   string
		do     func(*Admin) error
		a, b   answer // nil: it refuses connections
		want   error
		askedB int
	}{
		{"a dead node", schedule(plain), nil, ok, nil, 1},
		{"nothing was done", schedule(plain), unavailable, ok, nil, 1},
		{"too many requests", schedule(plain), refuses(429, CodeRateLimited), ok, nil, 1},
		{"another leads", schedule(plain), refuses(503, CodeNotLeader), ok, nil, 1},
		{"refused", cancel(0), late, ok, ErrTooLate, 0},
		{"in doubt", schedule(plain), refuses(504, CodeInDoubt), ok, ErrInDoubt, 0},
		{"broken", schedule(plain), breaks(""), ok, ErrInDoubt, 0},
		{"half an answer", schedule(plain), breaks(`{"code":`), ok, ErrInDoubt, 0},
		{"a gateway's words", schedule(plain), gateway, ok, ErrInDoubt, 0},
		{"a gateway's words in JSON", schedule(plain), inJSON(`{"error":"upstream timed out"}`), ok, ErrInDoubt, 0},
		{"a gateway's code", cancel(0), inJSON(`{"code":"UPSTREAM_TIMEOUT"}`), ok, ErrInDoubt, 0},
		{"another's answer", schedule(plain), says(`{"status":"ok"}`), ok, ErrInDoubt, 0},
		{"an answer of nothing", cancel(0), says(`null`), ok, ErrInDoubt, 0},
		{"half of an answer in whole JSON", schedule(plain), says(`{"code":"scheduled","topic":"t","id":"i"}`), ok, ErrInDoubt, 0},
		{"an operation in another's words", operation, says(`{"id":"1"}`), says(`{"id":"1","verb":"cancel","state":"running"}`), nil, 1},
		{"a read, another's answer", get, says(`{"status":"ok"}`), says(`{"index":"1","outcomes":[]}`), nil, 1},
		{"replace only, broken", schedule(present), breaks(""), ok, ErrInDoubt, 0},
		{"a cancel of whichever, broken", cancel(0), breaks(""), ok, ErrInDoubt, 0},
		{"with a key, broken", schedule(keyed), breaks(""), ok, nil, 1},
		{"with a key, in doubt", schedule(keyed), refuses(504, CodeInDoubt), ok, nil, 1},
		{"with a key, broken, and refused the first time", schedule(keyed), breaks(""), conflict, ErrConflict, 1},
		{"with a key, broken, and the key was another's", schedule(keyed), breaks(""), refuses(409, CodeKeyReused), ErrKeyReused, 1},
		{"with a key, broken, and the token ends", schedule(keyed), breaks(""), refuses(401, CodeTokenUnknown), ErrInDoubt, 1},
		{"with a key, broken, and the token is for less", schedule(keyed), breaks(""), refuses(403, CodeForbidden), ErrInDoubt, 1},
		{"with a key, broken, and it is too late a time", schedule(keyed), breaks(""), refuses(400, CodeBadRequest), ErrInDoubt, 1},
		{"if absent, broken", schedule(absent), breaks(""), ok, ErrInDoubt, 0}, // delivered since, it would be absent again
		{"in the place of one, broken", schedule(exactly), breaks(""), ok, nil, 1},
		{"in the place of one, broken, and another waits now", schedule(exactly), breaks(""), conflict, ErrInDoubt, 1},
		{"a cancel of one, broken", cancel(41), breaks(""), ok, nil, 1},
		{"an operation, broken", operation, breaks(""), says(`{"id":"1","verb":"cancel","state":"running"}`), nil, 1},
		{"an operation, broken, and the token ends", operation, breaks(""), refuses(401, CodeTokenUnknown), ErrInDoubt, 1},
		{"a read, broken", get, breaks(""), says(`{"index":"1","outcomes":[]}`), nil, 1},
		{"a read, a gateway's words", get, gateway, says(`{"index":"1","outcomes":[]}`), nil, 1},
		{"a read, half", get, breaks(`{"outc`), says(`{"index":"1","outcomes":[]}`), nil, 1},
		{"a read of nothing", get, refuses(404, CodeNotFound), ok, ErrNotFound, 0},
		{"a token that is none", get, refuses(401, CodeTokenUnknown), ok, ErrUnauthenticated, 0},
		{"nobody is there", schedule(plain), nil, nil, ErrUnavailable, 0},
		{"nobody can", schedule(plain), unavailable, unavailable, ErrUnavailable, -1},
		{"nobody answers", schedule(keyed), breaks(""), breaks(""), ErrInDoubt, -1},
		{"in doubt, then nobody can", schedule(keyed), breaks(""), unavailable, ErrInDoubt, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
				nodes := admin.nodes.http.Transport.(bubbled)
				a.answers, b.answers = []answer{tt.a}, []answer{tt.b}
				if tt.a == nil {
					delete(nodes, "a:1")
				}
				if tt.b == nil {
					delete(nodes, "b:1")
				}
				began := time.Now()
				err := tt.do(admin)
				if !errors.Is(err, tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				if tt.want != ErrInDoubt && errors.Is(err, ErrInDoubt) {
					t.Errorf("in doubt: %v", err)
				}
				if got := len(b.requests()); got != tt.askedB && tt.askedB >= 0 {
					t.Errorf("b was asked %d times, want %d", got, tt.askedB)
				}
				if took := time.Since(began); took > usualTimeout {
					t.Errorf("it took %v", took)
				}
				if err == nil && tt.askedB == 1 { // the one that answers is asked first
					_ = tt.do(admin)
					if len(b.requests()) != 2 || len(a.requests()) > 1 {
						t.Errorf("asked a %d times, b %d times", len(a.requests()), len(b.requests()))
					}
				}
			})
		})
	}
}

// Each call that starts an operation has a key, which is the same however often it is sent.
func TestAdmin_startsOneOperationHoweverOftenItAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		var keys []string
		keeps := func(then answer) answer {
			return func(w http.ResponseWriter, r *http.Request) {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				then(w, r)
			}
		}
		a.answers, b.answers = []answer{keeps(breaks(""))}, []answer{keeps(says(`{"id":"1","verb":"cancel","state":"running"}`))}
		for range 2 {
			if o, err := admin.StartOperation(context.Background(), OperationRequest{Verb: OperationNow, All: true, Reason: "r"}); err != nil || o.ID != "1" {
				t.Fatal(o, err)
			}
		}
		if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] == keys[2] {
			t.Errorf("keys %q", keys)
		}
	})
}

// An untraced carrier tells nobody what it sends, and fails.
type untraced struct {
	err   error
	asked int
}

func (u *untraced) RoundTrip(*http.Request) (*http.Response, error) {
	u.asked++
	return nil, u.err
}

// What another's transport may have sent is not sent again.
func TestAdmin_doubtsWhatAnothersTransportSent(t *testing.T) {
	for _, tt := range []struct {
		err, want error
		again     bool
	}{
		{io.ErrUnexpectedEOF, ErrInDoubt, false},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, ErrInDoubt, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, ErrUnavailable, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			carrier := &untraced{err: tt.err}
			admin, err := NewAdmin([]string{"a:1", "b:1"}, AdminOptions{Transport: carrier})
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			_, err = admin.Schedule(t.Context(), ScheduleRequest{Topic: "t", ID: "i"})
			if !errors.Is(err, tt.want) || errors.Is(err, ErrInDoubt) != (tt.want == ErrInDoubt) || (carrier.asked > 1) != tt.again {
				t.Errorf("%v: error %v after %d requests", tt.err, err, carrier.asked)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			carrier.asked = 0
			if _, err := admin.Schedule(ended, ScheduleRequest{Topic: "t", ID: "i"}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrInDoubt) || carrier.asked != 0 {
				t.Errorf("error %v after %d requests when ctx had ended", err, carrier.asked)
			}
		})
	}
}

// A node that stands still is passed by, and ctx bounds what a call takes.
func TestAdmin_goesOnWhenANodeStandsStill(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers, b.answers = []answer{silent}, []answer{says(`{"index":"1","outcomes":[]}`)}
		began := time.Now()
		if _, err := admin.Get(t.Context(), "t", "i"); err != nil || time.Since(began) > 6*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers, b.answers = []answer{silent}, []answer{silent}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := admin.Schedule(ctx, ScheduleRequest{Topic: "t"})
		if !errors.Is(err, ErrInDoubt) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		_, err = admin.Get(ctx, "t", "i")
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestAdmin_waitsAsLongAsNodesAsk(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		busy := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "3")
			refuses(429, CodeRateLimited)(w, r)
		}
		a.answers, b.answers = []answer{busy, says(`{"code":"scheduled","topic":"t","id":"i","seq":"7"}`)}, []answer{busy}
		began := time.Now()
		if _, err := admin.Schedule(t.Context(), ScheduleRequest{Topic: "t"}); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

func TestAdmin_saysWhatIsWrong(t *testing.T) {
	problem := refuses(412, CodeConflict)
	node := &fakeNode{answers: []answer{problem}}
	server := httptest.NewServer(node)
	defer server.Close()
	admin, err := NewAdmin([]string{server.Listener.Addr().String()}, AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.Change(t.Context(), Name{Topic: "t", ID: "i", Seq: 40}, ChangeRequest{})
	if told, ok := errors.AsType[*Problem](err); !ok || told.Seq != 41 || told.Status != 412 || err.Error() != `change "i" of t: because conflict` {
		t.Errorf("%v, %+v", err, told)
	}
	says := func(status int, text, want string) {
		t.Helper()
		node.mu.Lock()
		node.answers = []answer{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); io.WriteString(w, text) }}
		node.mu.Unlock()
		if _, err := admin.Pause(t.Context(), Pause{Kind: PauseTopic, Name: "x"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	says(404, "<html>", "is this the api address of a node?")
	says(400, "Client sent an HTTP request to an HTTPS server.\n", "speaks TLS: write https://")
	says(409, `{"error":"it is no delay topic"}`, `pause topic "x": it is no delay topic`)
	says(200, `{"changed":"perhaps"}`, "in doubt")
	says(200, strings.Repeat(" ", mostAnswered)+`{}`, "more than 33554432 bytes")
	if _, err := admin.Pause(t.Context(), Pause{Kind: "node", Name: "x"}); !errors.Is(err, ErrBadRequest) {
		t.Errorf("error %v", err)
	}
	admin.Close()
	if _, err := admin.Status(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v after Close", err)
	}
	for _, addresses := range [][]string{nil, {""}, {"ftp://a:1"}, {"http://anna:secret@a:1"}, {"a:1?x=y"}, {"http://a:1", "http://"}} {
		if _, err := NewAdmin(addresses, AdminOptions{}); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q: error %v", addresses, err)
		}
	}
}

func TestAdmin_showsTokensAndTLS(t *testing.T) {
	node := &fakeNode{answers: []answer{says(`{"node":"n1"}`)}}
	server := httptest.NewUnstartedServer(node)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	address := server.Listener.Addr().String()
	token := filepath.Join(t.TempDir(), "token")
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	admin, err := NewAdmin([]string{address}, AdminOptions{Token: TokenFile(token), TLS: trusting})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Status(t.Context()); !errors.Is(err, os.ErrNotExist) || len(node.requests()) != 0 {
		t.Errorf("error %v without a token", err)
	}
	for _, text := range []string{"carillon_1\n", "  carillon_2"} {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := admin.Status(t.Context())
		asked := node.requests()
		if want := "GET /v1/status Authorization: Bearer " + strings.TrimSpace(text); err != nil || asked[len(asked)-1] != want {
			t.Errorf("error %v, asked %s, want %s", err, asked[len(asked)-1], want)
		}
	}
	strange, err := NewAdmin([]string{"https://" + address}, AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer strange.Close()
	if _, err := strange.Schedule(t.Context(), ScheduleRequest{}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v of a certificate nobody knows", err)
	}
}
