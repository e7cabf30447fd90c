package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/head"
)

// forwardedHeader has the node that has passed a request on, which is done once: members may disagree on
// who leads.
const forwardedHeader = "Carillon-Forwarded"

// callerHeader has who sent a request that a node passes on: a grant, in JSON and base64. It counts only
// from a node that has shown its certificate.
const callerHeader = "Carillon-Caller"

// onLeader passes requests that the leader alone can answer on to it, as they are.
//
//	client --> n2: may the caller? --> n1, leads: may the caller? --> its desks
//	       <-------------------------- the same answer
//
// The leader checks the caller's token again. Where nodes ask each other for certificates it is not shown the
// token: n2 says who the caller is, and what that one may.
//
// Where the leader was not reached nothing was done. If it was, and does not answer, a write may have
// taken effect: that is in doubt.
func (h *handler) onLeader(to route, serve http.HandlerFunc) http.HandlerFunc {
	if !to.leader {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) {
		stale, _ := strconv.ParseBool(r.URL.Query().Get("stale")) // as the route reads it
		if isRead(r) && stale {
			serve(w, r)
			return
		}
		leader := h.node.Leader()
		switch {
		case leader.Self:
			serve(w, r)
		case leader.API == "" || r.Header.Get(forwardedHeader) != "":
			h.complain(w, problem{Problem: client.Problem{Status: http.StatusServiceUnavailable, Code: client.CodeNotLeader, Detail: h.leaderless(leader.ID)}})
		default:
			note(r.Context(), "passed_on_to", leader.ID)
			h.forward(leader.ID, leader.API, visitOf(r.Context()).who).ServeHTTP(patient{w, h.ended(r)}, r)
		}
	}
}

// isRead reports whether a request changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// patient gives the client as long again with each part of an answer, as the leader does that streams it:
// else the time for one answer cuts the stream. What the client may not have any more is cut off.
type patient struct {
	http.ResponseWriter
	ended func() *problem
}

func (p patient) Write(part []byte) (int, error) {
	if refused := p.ended(); refused != nil {
		return 0, &refused.Problem
	}
	err := http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(lineTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.ResponseWriter.Write(part)
}

// Unwrap is for http.ResponseController.
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// ended returns what tells why the answer must not go on. Where the leader sees the token it knows by itself,
// and ends a stream with a line; where it is told by this node who asks, nobody else would know.
func (h *handler) ended(r *http.Request) func() *problem {
	if !h.callers.Leader.Vouches || r.Method != http.MethodGet {
		return func() *problem { return nil }
	}
	return visitOf(r.Context()).ended
}

// leaderless says why nobody can be asked.
func (h *handler) leaderless(leader string) string {
	status := h.node.Status()
	if leader == "" && (status.State == "unborn" || status.State == "replaced") {
		return fmt.Sprintf("%s is %s, it has no place in the group and knows no leader: ask another member, at its api address", status.Node, status.State)
	}
	return "no leader is known: try again when a majority of the members runs; if a majority has lost its disks, mount the same disks again"
}

// errNotReached says that nothing was sent.
var errNotReached = errors.New("not reached")

// forward returns what passes a request on to the member at the address.
func (h *handler) forward(leader, address string, who access.Grant) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = h.callers.Leader.scheme(), address, address
			p.Out.Header.Set(forwardedHeader, h.node.Status().Node)
			for _, name := range head.Conditions() { // which a proxy drops that the header Connection names: it would be another request
				if given := p.In.Header.Values(name); len(given) > 0 {
					p.Out.Header[name] = given
				}
			}
			p.Out.Header.Del(callerHeader)
			if h.callers.Leader.Vouches {
				p.Out.Header.Del("Authorization")
				p.Out.Header.Set(callerHeader, writeCaller(who))
			}
			for _, name := range []string{"Origin", "Sec-Fetch-Site"} { // judged here, by the host that the browser asked
				p.Out.Header.Del(name)
			}
		},
		Transport:     h.toLeader,
		FlushInterval: -1, // streams
		ErrorLog:      slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p := client.Problem{Status: http.StatusServiceUnavailable, Code: client.CodeUnavailable, Detail: fmt.Sprintf("leader %s, at %q, does not answer, nothing was done: ask again: %v", leader, address, err)}
			switch {
			case errors.Is(err, errNotReached):
				p.Detail = fmt.Sprintf("leader %s does not answer at %q: correct its api address in cluster.members of %s, or ask the leader itself: %v", leader, address, h.node.Status().Node, err)
			case !isRead(r):
				p.Status, p.Code = http.StatusGatewayTimeout, client.CodeInDoubt
				p.Detail = fmt.Sprintf("sent to leader %s, at %q, and what came of it is not known: it may have taken effect, or may yet; ask for the message: %v", leader, address, err)
			}
			h.complain(w, problem{Problem: p})
		},
	}
}

// writeCaller returns a grant as callerHeader has it.
func writeCaller(g access.Grant) string {
	text, err := json.Marshal(g)
	if err != nil { // texts
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}

// vouchedFor returns who sent the request, if a node of the cluster says so.
func (c Callers) vouchedFor(r *http.Request) (g access.Grant, ok bool) {
	said := r.Header.Get(callerHeader)
	if said == "" || c.Member == nil || !c.Member(tlsOf(r)) {
		return g, false
	}
	text, err := base64.StdEncoding.DecodeString(said)
	return g, err == nil && json.Unmarshal(text, &g) == nil
}

// A passage is how the leader is reached. Reads have connections that are kept: one that the other side has closed
// costs a read nothing, since net/http sends it again on a new one. Whoever takes such a connection up for a write
// cannot tell whether it was read there, so that each write has a connection of its own.
type passage struct{ reads, writes *http.Transport }

// The connections for reads that are kept while no request needs them: so many, for less time than the leader
// would keep them.
const (
	mostKept = 8
	keptFor  = idleTimeout / 4
)

// RoundTrip is for http.RoundTripper.
func (p passage) RoundTrip(r *http.Request) (*http.Response, error) {
	if isRead(r) {
		return p.reads.RoundTrip(r)
	}
	return p.writes.RoundTrip(r)
}

// passage returns how the leader is reached.
func (c Caller) passage() passage {
	reads := c.transport()
	reads.MaxIdleConnsPerHost, reads.IdleConnTimeout = mostKept, keptFor
	writes := c.transport()
	writes.DisableKeepAlives = true
	return passage{reads, writes}
}

func (c Caller) transport() *http.Transport {
	reached := func(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNotReached, err)
			}
			return conn, nil
		}
	}
	t := &http.Transport{DisableCompression: true, ResponseHeaderTimeout: writeTimeout}
	if c.Dial != nil {
		t.DialTLSContext = reached(c.Dial)
	} else {
		t.DialContext = reached((&net.Dialer{Timeout: dialTimeout}).DialContext)
	}
	return t
}

// scheme is that of the addresses of nodes.
func (c Caller) scheme() string {
	if c.Dial != nil {
		return "https"
	}
	return "http"
}
