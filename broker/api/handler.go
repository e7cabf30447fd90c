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
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillonmq/carillon/broker"
)

// A Node is the broker as its API sees it.
type Node interface {
	// Status returns what the node knows at the moment.
	Status() broker.Status
	// Ready returns why the node does not do its part, or nil.
	Ready() error
	// Standing returns what a node is told that asks whether it may be born.
	Standing() broker.Standing
	// ReachKafka returns nil when Kafka answers the node, which it looks at now.
	ReachKafka(ctx context.Context) error
	// Replace gives a member that lost its disk a new place; only the leader can.
	Replace(ctx context.Context, member string) error
}

// NewHandler returns the API of the node:
//
//	GET  /livez               200 while the process serves
//	GET  /readyz              200 when the node does its part, else 503 and why not
//	GET  /metrics             for Prometheus
//	GET  /v1/status           broker.Status
//	GET  /v1/standing         broker.Standing, for the other nodes
//	GET  /v1/kafka            200 when Kafka answers the node, asked now, else 503 and why not
//	POST /v1/cluster/replace  {"member": "n3"}; any node passes it on to the leader
//
// Answers are JSON, an error is {"error": "..."}.
func NewHandler(node Node, metrics prometheus.Gatherer, log *slog.Logger) http.Handler {
	h := &handler{node: node, answers: answers{log.With("component", "api")}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		h.answer(w, http.StatusOK, map[string]bool{"live": true})
	})
	mux.HandleFunc("GET /readyz", h.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { h.answer(w, http.StatusOK, node.Status()) })
	mux.HandleFunc("GET /v1/standing", func(w http.ResponseWriter, _ *http.Request) { h.answer(w, http.StatusOK, node.Standing()) })
	mux.HandleFunc("GET /v1/kafka", h.kafka)
	mux.HandleFunc("POST /v1/cluster/replace", h.replace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	})
	// A web page in the operator's browser can reach loopback too.
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(h.refuseOrigin))
	return protection.Handler(mux)
}

type handler struct {
	node Node
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

// replaceRequest is the body of POST /v1/cluster/replace.
type replaceRequest struct {
	Member string `json:"member"`
	// Forwarded is set by a node that passes the request on, once: the members may
	// disagree on who leads.
	Forwarded bool `json:"forwarded,omitempty"`
}

// mostRequested bounds the body of a request in bytes.
const mostRequested = 64 << 10

func (h *handler) replace(w http.ResponseWriter, r *http.Request) {
	var request replaceRequest
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostRequested))
	body.DisallowUnknownFields()
	if err := body.Decode(&request); err != nil || request.Member == "" {
		h.refuse(w, http.StatusBadRequest, `the body is not {"member": "ID"} with the id of one of cluster.members`)
		return
	}
	status := h.node.Status()
	leader := slices.IndexFunc(status.Members, func(m broker.MemberStatus) bool { return m.ID == status.Leader })
	switch {
	case status.Leader == status.Node:
		if err := h.node.Replace(r.Context(), request.Member); err != nil {
			h.refuse(w, http.StatusConflict, err.Error())
			return
		}
	case leader < 0 || request.Forwarded:
		h.refuse(w, http.StatusServiceUnavailable, "no leader is known: try again when a majority of the members runs; if a majority has lost its disks, they must be restored")
		return
	default:
		request.Forwarded = true
		address := status.Members[leader].API
		if err := NewClient(address).post(r.Context(), "/v1/cluster/replace", request); err != nil {
			text := fmt.Sprintf("leader %s: %v", status.Leader, err)
			if answer := (*Error)(nil); !errors.As(err, &answer) {
				text = fmt.Sprintf("leader %s does not answer at %q: correct its api address in cluster.members of %s, or ask the leader itself: %v",
					status.Leader, address, status.Node, err)
			}
			h.refuse(w, http.StatusBadGateway, text)
			return
		}
	}
	h.answer(w, http.StatusOK, replaceRequest{Member: request.Member})
}

// failure is the body of every answer that is not a success.
type failure struct {
	Error string `json:"error"`
}

// answers writes them.
type answers struct{ log *slog.Logger }

func (a answers) refuse(w http.ResponseWriter, code int, text string) {
	a.answer(w, code, failure{text})
}

func (a answers) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.log.Debug("answer not sent", "error", err)
	}
}
