package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/access"
)

// A route is one of the API, and what it takes to use it. There are no others.
type route struct {
	pattern string // of http.ServeMux
	need    need
	serve   http.HandlerFunc
}

// A need is what a caller must have for a route. The zero value: nothing.
type need struct {
	permission access.Permission
	// somewhere: it is enough to have the permission for some topics and targets; else it
	// is wanted for the {topic} and {target} of the path, and for all where the path has none.
	somewhere bool
	// queried: the topic is that of ?topic=, in place of the path's. Only what answers of that topic
	// alone may have it.
	queried bool
}

// routes is the whole API. What needs nothing is asked by what watches over the process,
// and by the other nodes: of each other's standing and clocks they must know whatever
// became of a token file, and an answer tells nothing of messages.
func (h *handler) routes(metrics prometheus.Gatherer) []route {
	var (
		nothing     need
		sees        = need{permission: access.View, somewhere: true}
		operates    = need{permission: access.Operate}
		seesPath    = need{permission: access.View}
		seesTopic   = need{permission: access.View, queried: true}
		administers = need{permission: access.Administer}
	)
	return []route{
		{"GET /livez", nothing, h.live},
		{"GET /readyz", nothing, h.ready},
		{"GET /v1/standing", nothing, h.standing},
		{"GET /v1/kafka", nothing, h.kafka},
		{"GET /v1/clock", nothing, h.clock},
		{"GET /metrics", sees, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP},
		{"GET /v1/status", sees, h.status},
		{"POST " + pausePath(broker.PauseTopic, "{topic}", "pause"), operates, h.pause},
		{"POST " + pausePath(broker.PauseTopic, "{topic}", "resume"), operates, h.resume},
		{"POST " + pausePath(broker.PauseTarget, "{target}", "pause"), operates, h.pause},
		{"POST " + pausePath(broker.PauseTarget, "{target}", "resume"), operates, h.resume},
		{"GET /v1/explain", seesTopic, h.explain},
		{"GET " + messagesPath, seesTopic, h.list},
		{"GET " + histogramPath, seesTopic, h.histogram},
		{"GET " + messagesPath + "/{topic}/{id...}", seesPath, h.message},
		{"POST " + replacePath, administers, h.replace},
		{"POST " + raisePath, administers, h.raise},
	}
}

// met reports whether the grant is enough for the request.
func (n need) met(g access.Grant, r *http.Request) bool {
	if n.somewhere {
		return g.Holds(n.permission)
	}
	topic := r.PathValue("topic")
	if n.queried {
		topic = r.URL.Query().Get("topic")
	}
	return g.Allows(n.permission, access.Object{Topic: topic, Target: r.PathValue("target")})
}
