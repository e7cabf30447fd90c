package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
)

// A route is one of the API, and what it takes to use it. There are no others. It has one of the last two.
type route struct {
	pattern string // of http.ServeMux
	need    need
	leader  bool             // the leader alone can answer
	serve   http.HandlerFunc // for what watches over nodes, and for the other nodes
	account *account         // for users
}

// A need is what a caller must have for a route. The zero value: nothing.
type need struct {
	permission access.Permission
	// somewhere: it is enough to have the permission for some topics and targets; else it
	// is wanted for the {topic} and {target} of the path, and for all where the path has none. What
	// tells the rest in its body is judged by who serves it.
	somewhere bool
	// queried: topic and target are those of ?topic= and ?target=, in place of the path's. Only what answers
	// of these alone may have it.
	queried bool
}

// routes is the whole API. What needs nothing is asked by what watches over the process,
// and by the other nodes: of each other's standing and clocks they must know whatever
// became of a token file, and an answer tells nothing of messages.
func (h *handler) routes(metrics prometheus.Gatherer) []route {
	var (
		nothing     = need{}
		sees        = need{permission: access.View, somewhere: true}
		operates    = need{permission: access.Operate}
		schedules   = need{permission: access.Operate, somewhere: true} // for the topic and the target of each message
		seesPath    = need{permission: access.View}
		seesQuery   = need{permission: access.View, queried: true}
		administers = need{permission: access.Administer}

		missing, refused, changed = http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed
	)
	const onLeader = true
	plain := func(pattern string, n need, serve http.HandlerFunc) route {
		return route{pattern: pattern, need: n, serve: serve}
	}
	pauses := func(kind, verb string, a *account) route {
		return route{"POST " + pausePath(kind, "{"+kind+"}", verb), operates, onLeader, nil, a}
	}
	return []route{
		plain("GET /livez", nothing, h.live),
		plain("GET /readyz", nothing, h.ready),
		plain("GET /v1/standing", nothing, h.standing),
		plain("GET /v1/kafka", nothing, h.kafka),
		plain("GET /v1/clock", nothing, h.clock),
		plain("GET "+specPath, nothing, h.specServed),
		plain("GET /metrics", sees, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP),

		{"GET /v1/status", sees, false, nil, tells("status", "What the node knows of itself and its cluster", h.status)},
		{"GET /v1/explain", seesQuery, false, nil, tells("explain", "What this node knows of an id, in words", h.explain, refused)},

		{"GET " + messagesPath, seesQuery, onLeader, nil, tells("list", "What is pending, in order of delivery", h.list).as("application/json", client.Page{}).as(ndjsonType, client.Message{}, lastLine{})},
		{"GET " + countPath, seesQuery, onLeader, nil, tells("count", "How many messages are pending", h.count)},
		{"GET " + histogramPath, seesQuery, onLeader, nil, tells("histogram", "How many messages are pending by time and target", h.histogram)},
		{"GET " + messagesPath + "/{topic}/{id}", seesPath, onLeader, nil, tells("get", "What is known of a message", h.message, missing, refused).as("application/json", client.Life{}, client.Finding{})},

		{"POST " + messagesPath, schedules, onLeader, nil, tells("schedule", "Schedule a message", h.schedule, refused, changed).upTo(mostMessage)},
		{"PUT " + messagesPath + "/{topic}/{id}", schedules, onLeader, nil, tells("put", "Schedule a message under an id", h.put, refused, changed).upTo(mostMessage)},
		{"POST " + batchesPath, schedules, onLeader, nil, tells("batch", "Schedule up to 1,000 messages, each for itself", h.batch).upTo(mostBatch)},
		{"PATCH " + messagesPath + "/{topic}/{id}", operates, onLeader, nil, tells("change", "Change the message that waits under an id", h.change, missing, refused, changed).upTo(mostMessage)},
		{"DELETE " + messagesPath + "/{topic}/{id}", operates, onLeader, nil, tells("cancel", "Cancel the message that waits under an id", h.cancel, missing, refused, changed)},
		{"POST " + messagesPath + "/{topic}/{id}/now", operates, onLeader, nil, tells("now", "Deliver the message that waits under an id at once", h.now, missing, refused, changed)},

		{"GET " + lettersPath, seesQuery, false, nil, tells("dead-letters", "What lies in the dead-letter topics, the newest first", h.letters)},
		{"GET " + lettersPath + "/{topic}/{partition}/{offset}", sees, false, nil, tells("dead-letter", "One dead letter in full", h.letter, missing)},
		{"POST " + lettersPath + "/{topic}/{partition}/{offset}/replay", schedules, onLeader, nil, tells("replay", "Schedule a dead letter anew", h.replay, missing, refused, changed)},

		{"POST " + operationsPath, schedules, onLeader, nil, tells("start-operation", "Do one thing to all messages that a filter means", h.startOperation, refused).accepts()},
		{"GET " + operationsPath, sees, onLeader, nil, tells("operations", "Operations that run, and those that ended within a day", h.operations)},
		{"GET " + operationsPath + "/{operation}", sees, onLeader, nil, tells("operation", "How far an operation is", h.operation, missing)},
		{"POST " + operationsPath + "/{operation}/stop", schedules, onLeader, nil, tells("stop-operation", "End an operation: what is done stays done", h.stopOperation, missing)},

		{"GET /v1/topics", sees, onLeader, nil, tells("topics", "Delay topics, with what is pending of them, and whether they are paused", h.places(client.PauseTopic))},
		{"GET /v1/targets", sees, onLeader, nil, tells("targets", "Targets, with what is pending for them, and whether they are paused", h.places(client.PauseTarget))},
		pauses(client.PauseTopic, "pause", tells("pause-topic", "Have the messages of a delay topic wait", pausesTopic(h.node.Pause), refused)),
		pauses(client.PauseTopic, "resume", tells("resume-topic", "Deliver the messages of a delay topic again", pausesTopic(h.node.Resume), refused)),
		pauses(client.PauseTarget, "pause", tells("pause-target", "Have the messages for a target wait", pausesTarget(h.node.Pause), refused)),
		pauses(client.PauseTarget, "resume", tells("resume-target", "Deliver the messages for a target again", pausesTarget(h.node.Resume), refused)),

		{"POST " + replacePath, administers, onLeader, nil, tells("replace", "Give a member that has lost its disk a new place", h.replace, refused)},
		{"POST " + raisePath, administers, onLeader, nil, tells("raise", "Raise the feature level", h.raise, refused)},
	}
}

// met reports whether the grant is enough for the request.
func (n need) met(g access.Grant, r *http.Request) bool {
	if n.somewhere {
		return g.Holds(n.permission)
	}
	o := access.Object{Topic: r.PathValue("topic"), Target: r.PathValue("target")}
	if n.queried {
		asked := r.URL.Query()
		o = access.Object{Topic: asked.Get("topic"), Target: asked.Get("target")}
	}
	return g.Allows(n.permission, o)
}
