// Package api serves health, metrics and status of a node over HTTP, answers the
// other nodes of the cluster, and is the client of all that.
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
	"github.com/carillonmq/carillon/broker/query"
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
	// Standing returns what a node is told that asks whether it may be born.
	Standing() broker.Standing
	// ReachKafka returns nil when Kafka answers the node, which it looks at now.
	ReachKafka(ctx context.Context) error
	// Clock returns what the node's clock says.
	Clock() broker.ClockReading
	// Replace gives a member that lost its disk a new place; only the leader can.
	Replace(ctx context.Context, member string) error
	// RaiseLevel raises the feature level once all members understand it; only the
	// leader can.
	RaiseLevel(ctx context.Context) (broker.LevelRaise, error)
	// Pause has the messages of a delay topic or target wait, Resume ends that; only the
	// leader can.
	Pause(ctx context.Context, p broker.Pause) (broker.PauseChange, error)
	Resume(ctx context.Context, p broker.Pause) (broker.PauseChange, error)
	// Explain returns what the node knows of an id within its delay topic.
	Explain(topic, id string) (broker.Explanation, error)
}

// NewHandler returns the API of the node to those callers:
//
//	GET  /livez               200 while the process serves
//	GET  /readyz              200 when the node does its part, else 503 and why not
//	GET  /metrics             for Prometheus
//	GET  /v1/status           broker.Status
//	GET  /v1/explain          ?topic=&id=: broker.Explanation, else 409 while ids are not served
//	GET  /v1/messages         ?topic=&prefix=&target=&from=&to=&state=&limit=&cursor=: client.Page, of the leader
//	GET  /v1/histogram        ?topic=&prefix=&target=&from=&to=&state=&bounds=&by=target: client.Histogram, of the leader
//	GET  /v1/messages/{topic}/{id...}  client.Life; client.Finding of an id topic/partition/offset; of the leader
//	GET  /v1/standing         broker.Standing, for the other nodes
//	GET  /v1/kafka            200 when Kafka answers the node, asked now, else 503 and why not
//	GET  /v1/clock            broker.ClockReading, for the other nodes
//	POST /v1/cluster/replace  {"member": "n3"}; any node passes it on to the leader
//	POST /v1/cluster/raise    {}; likewise; answers broker.LevelRaise
//	POST /v1/topics/{topic}/pause    {"who": "...", "why": "..."}; likewise; answers broker.PauseChange
//	POST /v1/topics/{topic}/resume   {}; likewise
//	POST /v1/targets/{target}/pause  and resume, as of a topic
//
// Answers are JSON, an error is {"error": "..."}; who may not do something is answered
// with 401 or 403 and a problem.
func NewHandler(node Node, metrics prometheus.Gatherer, callers Callers, log *slog.Logger) http.Handler {
	h := &handler{node: node, callers: callers, turnedAway: repeats.New(), answers: answers{log.With("component", "api")}}
	mux := http.NewServeMux()
	for _, route := range h.routes(metrics) {
		mux.HandleFunc(route.pattern, h.guard(route))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := methods(mux, r); len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			h.refuse(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s, not %s", r.URL.Path, strings.Join(allowed, " or "), r.Method))
			return
		}
		h.refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	})
	// A web page in the operator's browser can reach loopback too.
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(h.refuseOrigin))
	return protection.Handler(mux)
}

// methods returns those that the path of the request takes, none for a path that there
// is not. The pattern "/" takes what is left, so the mux does not answer this itself.
func methods(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
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
	answers
}

func (h *handler) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	name := "Origin"
	if r.Header.Get(name) == "" {
		name = "Sec-Fetch-Site" // the other one that tells
	}
	h.refuse(w, http.StatusForbidden, fmt.Sprintf("%s is %q: a browser sent this for a web page of another origin, which may change nothing here;"+
		" send it without a browser", name, r.Header.Get(name)))
}

func (h *handler) live(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, map[string]bool{"live": true})
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, h.node.Status())
}

func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	for _, name := range []string{"topic", "id"} {
		if asked.Get(name) == "" {
			h.refuse(w, http.StatusBadRequest, name+" is missing: ask for /v1/explain?topic=TOPIC&id=ID, with the delay topic and the deliver-id")
			return
		}
	}
	explanation, err := h.node.Explain(asked.Get("topic"), asked.Get("id"))
	switch {
	case errors.Is(err, broker.ErrNoIDs):
		h.refuse(w, http.StatusConflict, err.Error())
	case err != nil:
		h.refuse(w, http.StatusInternalServerError, err.Error())
	default:
		h.answer(w, http.StatusOK, explanation)
	}
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

// kafka answers another member that leads and does not reach Kafka.
func (h *handler) kafka(w http.ResponseWriter, r *http.Request) {
	if err := h.node.ReachKafka(r.Context()); err != nil {
		h.refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	h.answer(w, http.StatusOK, map[string]bool{"reached": true})
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
