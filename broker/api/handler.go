// Package api is the HTTP API of a node: it lets those in who may, has messages scheduled, changed, cancelled,
// told and streamed, operations, dead letters and pauses, and serves health, metrics and status. What the
// leader alone can do it passes on to it. It describes itself in OpenAPI, and is the client that nodes use.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/bulk"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/head"
	"github.com/carillonmq/carillon/raftfsm/repeats"
)

// A Node is the broker as its API sees it.
type Node interface {
	// Status returns what the node knows at the moment.
	Status() broker.Status
	// Ready returns why the node does not do its part, or nil.
	Ready() error
	// Queries returns who answers questions about what is pending, while the node leads.
	Queries() *query.Desk
	// Orders returns who carries out what is asked for, while the node leads.
	Orders() *order.Desk
	// Operations returns who carries out operations on many messages, while the node leads.
	Operations() *bulk.Desk
	// DeadLetters returns who tells of dead letters.
	DeadLetters() *deadletter.Desk
	// Leader returns who leads, as far as the node knows.
	Leader() broker.Leader
	// Standing returns what a node is told that asks whether it may be born.
	Standing() broker.Standing
	// ReachKafka returns whether the node has room, or else why Kafka does not answer it, at which it looks now.
	ReachKafka(ctx context.Context) (broker.Reached, error)
	// Clock returns what the node's clock says.
	Clock() broker.ClockReading
	// Replace gives a member that lost its disk a new place; only the leader can.
	Replace(ctx context.Context, member string) error
	// RaiseLevel raises the feature level once all members understand it; only the
	// leader can.
	RaiseLevel(ctx context.Context) (broker.LevelRaise, error)
	// Pause has the messages of a delay topic or target wait, Resume ends that; only the
	// leader can.
	Pause(ctx context.Context, p client.Pause) (client.PauseChange, error)
	Resume(ctx context.Context, p client.Pause) (client.PauseChange, error)
	// Places returns delay topics or targets, with what the desk says of them.
	Places(ctx context.Context, desk *query.Desk, kind string) (client.Places, error)
	// Explain returns what the node knows of an id within its delay topic.
	Explain(ctx context.Context, topic, id string) (broker.Explanation, error)
	// Impossible returns why no message of the topic can be looked up by the id, or "".
	Impossible(topic, id string) string
}

// NewHandler returns the API of the node to those callers. GET /v1/openapi.json tells what it is for users;
// besides there are, for what watches over nodes and for the other nodes:
//
//	GET  /livez         200 while the process serves
//	GET  /readyz        200 when the node does its part, else 503 and why not
//	GET  /metrics       for Prometheus
//	GET  /v1/standing   broker.Standing, for the other nodes
//	GET  /v1/kafka      broker.Reached when Kafka answers the node, asked now, else 503 and why not
//	GET  /v1/clock      broker.ClockReading, for the other nodes
//
// Answers are JSON, an error is a problem; of the routes above it is {"error": "..."}.
func NewHandler(node Node, metrics prometheus.Gatherer, callers Callers, log *slog.Logger) http.Handler {
	a := answers{log.With("component", "api")}
	h := &handler{node: node, callers: callers, turnedAway: repeats.New(), gate: newGate(a), toLeader: callers.Leader.passage(), answers: a}
	mux := http.NewServeMux()
	routes := h.routes(metrics)
	byPattern := make(map[string]route, len(routes))
	for _, route := range routes {
		byPattern[route.pattern] = route
	}
	document := newDocument(entrance{mux, h, byPattern})
	for _, route := range routes {
		if route.account != nil {
			route.account.register(document, route.operation(document.OpenAPI().Components.Schemas))
		} else {
			mux.HandleFunc(route.pattern, h.enter(route, route.serve))
		}
	}
	h.spec = spec(document)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := methods(mux, r); len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			h.complain(w, *problemOfStatus(http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s, not %s", r.URL.Path, strings.Join(allowed, " or "), r.Method)))
			return
		}
		unknown := client.BadField("path", r.URL.EscapedPath(), "")
		unknown.Status = http.StatusNotFound // by its code no program takes it for a message that there never was
		unknown.Detail = "there is no " + r.Method + " " + r.URL.Path + ": an id has its slashes as %2F, and what a proxy adds to the path it has to take off again"
		h.complain(w, problem{Problem: *unknown})
	})
	// A web page in the operator's browser can reach loopback too.
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(h.refuseOrigin))
	return protection.Handler(h.straight(mux))
}

// straight refuses paths that could be taken for others.
func (h *handler) straight(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if unclear := head.CheckPath(r.URL); unclear != nil {
			h.complain(w, refuses(*unclear).told)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// methods returns those that the path of the request takes, none for a path that there
// is not. The pattern "/" takes what is left, so the mux does not answer this itself.
func methods(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, pattern := mux.Handler(&http.Request{Method: method, Host: r.Host, URL: r.URL}); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

type handler struct {
	node       Node
	callers    Callers
	turnedAway *repeats.Subjects // hosts and codes
	gate       *gate
	toLeader   http.RoundTripper
	spec       []byte // the OpenAPI document
	answers
}

func (h *handler) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	name := "Origin"
	if r.Header.Get(name) == "" {
		name = "Sec-Fetch-Site" // the other one that tells
	}
	h.complain(w, problem{Problem: client.Problem{Status: http.StatusForbidden, Code: client.CodeForbidden, Detail: fmt.Sprintf("%s is %q: a browser sent this for a web page of another origin, which may change nothing here;"+
		" send it without a browser", name, r.Header.Get(name))}})
}

func (h *handler) live(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, map[string]bool{"live": true})
}

type statusOutput struct{ Body broker.Status }

// status answers GET /v1/status.
func (h *handler) status(context.Context, *StaleInput) (*statusOutput, error) {
	return &statusOutput{h.node.Status()}, nil
}

type explainInput struct {
	StaleInput
	Topic string `query:"topic" doc:"the delay topic"`
	ID    string `query:"id" doc:"the id"`
}

type explainOutput struct{ Body broker.Explanation }

// explain answers GET /v1/explain.
func (h *handler) explain(ctx context.Context, in *explainInput) (*explainOutput, error) {
	for _, field := range [][2]string{{"topic", in.Topic}, {"id", in.ID}} {
		if field[1] == "" {
			return nil, wrong(field[0], "", "is missing: ask for /v1/explain?topic=TOPIC&id=ID, with the delay topic and the deliver-id")
		}
	}
	explanation, err := h.node.Explain(ctx, in.Topic, in.ID)
	if errors.Is(err, broker.ErrNoIDs) {
		return nil, refuses(client.Problem{Code: client.CodeIDsClosed, Detail: err.Error()})
	}
	if err != nil {
		return nil, problemOf(err)
	}
	return &explainOutput{explanation}, nil
}

func (h *handler) standing(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, h.node.Standing())
}

func (h *handler) clock(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, h.node.Clock())
}

func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if err := h.node.Ready(); err != nil {
		h.refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	h.answer(w, http.StatusOK, map[string]bool{"ready": true})
}

// kafka answers another member that leads and does not reach Kafka, or has no room.
func (h *handler) kafka(w http.ResponseWriter, r *http.Request) {
	reached, err := h.node.ReachKafka(r.Context())
	if err != nil {
		h.refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	h.answer(w, http.StatusOK, reached)
}

// failure is the body of an answer that is not a success; a problem has a Code, too.
type failure struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"`
}

// answers writes them.
type answers struct{ log *slog.Logger }

func (a answers) refuse(w http.ResponseWriter, code int, text string) {
	a.answer(w, code, failure{Error: text})
}

func (a answers) answer(w http.ResponseWriter, code int, body any) {
	a.write(w, code, "application/json", body)
}

func (a answers) write(w http.ResponseWriter, code int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.log.Debug("answer not sent", "error", err)
	}
}
