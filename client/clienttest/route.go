package clienttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
)

// routes are those of a node that programs use.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(*http.Request) (any, *client.Problem){
		"POST /v1/messages":                  s.postMessage,
		"PUT /v1/messages/{topic}/{id}":      s.postMessage,
		"POST /v1/batches":                   s.postBatch,
		"DELETE /v1/messages/{topic}/{id}":   s.deleteMessage,
		"PATCH /v1/messages/{topic}/{id}":    s.patchMessage,
		"POST /v1/messages/{topic}/{id}/now": s.postNow,
		"GET /v1/messages/{topic}/{id}":      s.getMessage,
		"GET /v1/explain":                    s.getExplain,
		"GET /v1/count":                      s.getCount,
		"GET /v1/histogram":                  s.getHistogram,
		"GET /v1/status":                     s.getStatus,
		"GET /v1/topics":                     s.getPlaces(client.PauseTopic),
		"GET /v1/targets":                    s.getPlaces(client.PauseTarget),
		"POST /v1/topics/{name}/pause":       s.postPause(client.PauseTopic),
		"POST /v1/topics/{name}/resume":      s.postResume(client.PauseTopic),
		"POST /v1/targets/{name}/pause":      s.postPause(client.PauseTarget),
		"POST /v1/targets/{name}/resume":     s.postResume(client.PauseTarget),
		"POST /v1/operations":                s.postOperation,
		"GET /v1/operations":                 s.getOperations,
		"GET /v1/operations/{id}":            s.getOperation,
		"POST /v1/operations/{id}/stop":      s.getOperation, // it has ended already
		"GET /v1/dead-letters":               s.getLetters,
		"GET " + letterPath:                  s.getLetter,
		"POST " + letterPath + "/replay":     s.postReplay,
		"/":                                  func(r *http.Request) (any, *client.Problem) { return nil, unknown("path %s", r.URL.Path) },
	} {
		takesBody := takeBodies[pattern]
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			r.Body = http.MaxBytesReader(w, r.Body, mostOf(pattern))
			if p := cmp.Or(check(r), checkBody(r, takesBody)); p != nil {
				complain(w, p)
				return
			}
			tell(w, serve)(r)
		})
	}
	mux.HandleFunc("GET /v1/messages", s.list)
	return mux
}

// takeBodies are the routes that take one.
var takeBodies = map[string]bool{
	"POST /v1/messages": true, "PUT /v1/messages/{topic}/{id}": true, "PATCH /v1/messages/{topic}/{id}": true, "POST /v1/batches": true,
	"POST /v1/topics/{name}/pause": true, "POST /v1/topics/{name}/resume": true, "POST /v1/targets/{name}/pause": true, "POST /v1/targets/{name}/resume": true,
	"POST /v1/operations": true, "POST " + letterPath + "/replay": true,
}

// mostOf returns how many bytes the body of a request may have, as nodes bound it.
func mostOf(pattern string) int64 {
	switch pattern {
	case "POST /v1/messages", "PUT /v1/messages/{topic}/{id}", "PATCH /v1/messages/{topic}/{id}":
		return 4 << 20
	case "POST /v1/batches":
		return 16 << 20
	}
	return 64 << 10
}

const letterPath = "/v1/dead-letters/{topic}/{partition}/{offset}"

// tell writes what a route answers.
func tell(w http.ResponseWriter, serve func(*http.Request) (any, *client.Problem)) func(*http.Request) {
	return func(r *http.Request) {
		answer, p := serve(r)
		if p != nil {
			complain(w, p)
			return
		}
		status := http.StatusOK
		switch a := answer.(type) {
		case client.Answer:
			w.Header().Set("ETag", strconv.Quote(strconv.FormatUint(a.Seq, 10)))
		case client.Operation:
			if r.URL.Path == "/v1/operations" && !a.DryRun {
				status = http.StatusAccepted
			}
		}
		write(w, status, "application/json", answer)
	}
}

func write(w http.ResponseWriter, status int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever asked may have gone
}

func complain(w http.ResponseWriter, p *client.Problem) {
	told := *p
	told.Status = cmp.Or(p.Status, p.Code.Status())
	told.Title = http.StatusText(told.Status)
	write(w, told.Status, "application/problem+json", told)
}

func unknown(format string, args ...any) *client.Problem {
	return &client.Problem{Code: client.CodeNotFound, Detail: "not found: " + fmt.Sprintf(format, args...)}
}

// routed returns the target of messages that do not say it.
func routed(topic string) string { return strings.TrimSuffix(topic, delaySuffix) }

// rfc3339 is a time as deliver-at takes it.
func rfc3339(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

func nameOf(r *http.Request) name { return name{r.PathValue("topic"), r.PathValue("id")} }

// isOrigin reports whether the id is the topic/partition/offset of a record.
func isOrigin(n name) bool {
	numbers, ok := strings.CutPrefix(n.id, n.topic+"/")
	partition, offset, _ := strings.Cut(numbers, "/")
	_, err := strconv.ParseUint(partition, 10, 31)
	_, err2 := strconv.ParseUint(offset, 10, 63)
	return ok && err == nil && err2 == nil
}

func (s *Server) postMessage(r *http.Request) (any, *client.Problem) {
	var request client.ScheduleRequest
	if p := read(r, &request, false); p != nil {
		return nil, p
	}
	if n := nameOf(r); n.id != "" {
		request.Topic, request.ID = n.topic, n.id
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		request.IdempotencyKey = key
	}
	switch c, seq, p := condition(r); {
	case p != nil:
		return nil, p
	case c == client.Absent:
		request.If = client.ConditionAbsent
	case c == client.Present:
		request.If = client.ConditionPresent
	case c == client.Exactly:
		request.If = strconv.FormatUint(seq, 10)
	}
	return answered(s.schedule(request))
}

// answered makes the answer to a route of an answer to an operation.
func answered(a client.Answer, p *client.Problem) (any, *client.Problem) { return a, p }

func (s *Server) postBatch(r *http.Request) (any, *client.Problem) {
	var batch client.BatchRequest
	if p := read(r, &batch, false); p != nil {
		return nil, p
	}
	if n := len(batch.Messages); n < 1 || n > client.MostBatched {
		return nil, client.BadField("messages", strconv.Itoa(n), fmt.Sprintf("are too few or too many: send 1 to %d", client.MostBatched))
	}
	answers := make([]client.BatchItem, len(batch.Messages))
	for i, request := range batch.Messages {
		a, p := s.schedule(request)
		if p != nil {
			p.Status = p.Code.Status()
			p.Title = http.StatusText(p.Status)
			answers[i].Problem = p
		} else {
			answers[i].Answer = &a
		}
	}
	return client.BatchAnswer{Answers: answers}, nil
}

func (s *Server) deleteMessage(r *http.Request) (any, *client.Problem) {
	c, seq, p := condition(r)
	if p != nil {
		return nil, p
	}
	n := nameOf(r)
	if p := checkTopic(n.topic); p != nil {
		return nil, p
	}
	return answered(s.carryOut(operation{verb: cancel, condition: c, seq: seq, message: message{topic: n.topic, id: n.id, chosen: !isOrigin(n)}}))
}

func (s *Server) patchMessage(r *http.Request) (any, *client.Problem) {
	var request client.ChangeRequest
	if p := read(r, &request, false); p != nil {
		return nil, p
	}
	c, seq, p := condition(r)
	if p = cmp.Or(p, request.Check()); p != nil {
		return nil, p
	}
	return answered(s.change(nameOf(r), c, seq, request))
}

func (s *Server) postNow(r *http.Request) (any, *client.Problem) {
	c, seq, p := condition(r)
	if p != nil {
		return nil, p
	}
	return answered(s.deliverNow(nameOf(r), c, seq))
}

func (s *Server) postPause(kind string) func(*http.Request) (any, *client.Problem) {
	return func(r *http.Request) (any, *client.Problem) {
		p := client.Pause{Kind: kind, Name: r.PathValue("name"), Since: s.now}
		if problem := read(r, &p, true); problem != nil {
			return nil, problem
		}
		switch {
		case kind == client.PauseTopic && !isDelayTopic(p.Name):
			return nil, client.BadField(kind, p.Name, "is of no route: those of clienttest end in "+delaySuffix)
		case kind == client.PauseTarget && isDelayTopic(p.Name):
			return nil, client.BadField(kind, p.Name, "is a delay topic: pause it as a topic")
		case strings.TrimSpace(p.Why) == "":
			return nil, client.BadField("why", p.Why, "is empty: say it to those who find it paused")
		}
		if was := s.pauseOf(kind, p.Name); was != nil {
			return client.PauseChange{Was: was}, nil
		}
		s.pauses = append(s.pauses, p)
		s.settle()
		return client.PauseChange{Changed: true}, nil
	}
}

func (s *Server) postResume(kind string) func(*http.Request) (any, *client.Problem) {
	return func(r *http.Request) (any, *client.Problem) {
		for i, p := range s.pauses {
			if p.Kind == kind && p.Name == r.PathValue("name") {
				s.pauses = append(s.pauses[:i], s.pauses[i+1:]...)
				s.settle()
				return client.PauseChange{Changed: true}, nil
			}
		}
		return client.PauseChange{}, nil
	}
}

// pauseOf returns how a place is paused, or nil.
func (s *Server) pauseOf(kind, name string) *client.Pause {
	for _, p := range s.pauses {
		if p.Kind == kind && p.Name == name {
			return &p
		}
	}
	return nil
}
