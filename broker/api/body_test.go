package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

// A pipe is a listener within a bubble.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipe() *pipe { return &pipe{make(chan net.Conn), make(chan struct{})} }

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	close(p.closed)
	return nil
}

func (p *pipe) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipe) dial(context.Context, string, string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	p.conns <- theirs
	return mine, nil
}

// ended stops serving, and gives what serves time to end within the bubble.
func ended(stop func()) {
	stop()
	time.Sleep(time.Minute)
}

// An endless text.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(" ", len(p))), nil
}

// Bodies that come slowly, without end, or in part, are answered alike by the leader and by a follower, and the
// leader is asked nothing.
func TestBody_isJudgedByTheNodeThatIsAsked(t *testing.T) {
	const post = "POST /v1/messages HTTP/1.1\r\nHost: n\r\nContent-Type: application/json\r\n"
	for name, test := range map[string]struct {
		head string
		body io.Reader
		want int
		code client.Code
		says string
	}{
		"slow":            {post + "Content-Length: 100\r\n\r\n{", nil, 408, client.CodeBadRequest, "within 10s"},
		"slow, in chunks": {post + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", nil, 408, client.CodeBadRequest, "within 10s"},
		"too long":        {post + "Content-Length: 4194305\r\n\r\n", nil, 413, client.CodeTooLarge, "4194304 bytes"},
		"endless":         {post + "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", endless{}, 413, client.CodeTooLarge, "4194304 bytes"},
		"no chunks":       {post + "Transfer-Encoding: chunked\r\n\r\nx\r\n", nil, 400, client.CodeBadRequest, "before it is whole"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leads := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
				leader, follower := newPipe(), newPipe()
				ctx, stop := context.WithCancel(t.Context())
				defer ended(stop)
				callers := Anyone()
				callers.Leader.Dial = leader.dial
				go Serve(ctx, leader, handlerOf(leads), quiet())
				go Serve(ctx, follower, NewHandler(following("n1:7401"), prometheus.NewRegistry(), callers, quiet()), quiet())
				for which, asked := range map[string]*pipe{"leader": leader, "follower": follower} {
					conn, _ := asked.dial(ctx, "", "")
					go func() {
						_, _ = io.WriteString(conn, test.head)
						if test.body != nil {
							_, _ = io.Copy(conn, test.body)
						}
					}()
					answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatalf("%s: %v", which, err)
					}
					var p client.Problem
					err = json.NewDecoder(answer.Body).Decode(&p)
					if err != nil || answer.StatusCode != test.want || p.Code != test.code || !strings.Contains(p.Detail, test.says) {
						t.Errorf("%s: %d %+v %v", which, answer.StatusCode, p, err)
					}
					conn.Close()
				}
				if len(leads.orders.asked) > 0 {
					t.Errorf("the leader carried out %+v", leads.orders.asked)
				}
			})
		})
	}
}

// What a client did not send whole was not done: that is not in doubt, whichever node was asked.
func TestBody_cutShortIsNotInDoubt(t *testing.T) {
	leads := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	leader := httptest.NewServer(handlerOf(leads))
	defer leader.Close()
	for which, h := range map[string]http.Handler{"leader": handlerOf(leads), "follower": handlerOf(following(leader.Listener.Addr().String()))} {
		request := httptest.NewRequest("POST", "/v1/messages", io.MultiReader(strings.NewReader(schedules[:20]), broken{}))
		request.ContentLength = int64(len(schedules))
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, request)
		var p client.Problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code != http.StatusBadRequest || p.Code != client.CodeBadRequest || p.Field == "" || !strings.Contains(p.Detail, "nothing was done") {
			t.Errorf("%s: %d %s", which, answer.Code, answer.Body)
		}
	}
	if len(leads.orders.asked) > 0 {
		t.Errorf("the leader carried out %+v", leads.orders.asked)
	}
}

// broken is where a client is gone.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The time that a body has does not cut what is done with it.
func TestBody_givesNoTimeToWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{answers: answers{quiet()}, gate: newGate(answers{quiet()})}
		worked := func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusTeapot)
			case <-time.After(2 * bodyTimeout):
			}
		}
		p := newPipe()
		ctx, stop := context.WithCancel(t.Context())
		defer ended(stop)
		go Serve(ctx, p, h.gate.let(h.whole(route{account: &account{takesBody: true}}, worked)), quiet())
		conn, _ := p.dial(ctx, "", "")
		defer conn.Close()
		go io.WriteString(conn, "POST / HTTP/1.1\r\nHost: n\r\nContent-Length: 2\r\n\r\n{}")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%v %v", answer, err)
		}
	})
}

// Reads through a follower share connections to the leader; each write has one of its own. A connection that the
// leader has closed harms no request.
func TestForward_keepsConnectionsForReads(t *testing.T) {
	var opened, asked atomic.Int32
	leads := handlerOf(&fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}})
	leader := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); r.Header.Get("Break") != "" && asked.Load() == 21 {
			panic(http.ErrAbortHandler) // as if it were closed under the request
		}
		leads.ServeHTTP(w, r)
	}))
	leader.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	leader.Start()
	defer leader.Close()
	follower := handlerOf(following(leader.Listener.Addr().String()))
	for range 20 {
		if answer := send(follower, "GET", "/v1/count", ""); answer.Code != http.StatusOK {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
	}
	if opened.Load() != 1 {
		t.Errorf("20 reads in turn took %d connections", opened.Load())
	}
	if answer := send(follower, "GET", "/v1/count", "", "Break", "yes"); answer.Code != http.StatusOK || opened.Load() != 2 {
		t.Errorf("closed under a read: %d %s, %d connections", answer.Code, answer.Body, opened.Load())
	}
	leader.CloseClientConnections()
	for range 3 {
		if answer := send(follower, "POST", "/v1/messages", schedules, "Idempotency-Key", "k"); answer.Code != http.StatusOK {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	}
	if opened.Load() != 5 {
		t.Errorf("with 3 writes there were %d connections, want 5", opened.Load())
	}
}
