package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// A problem is the body of an answer that refuses, as RFC 9457 has it:
//
//	Content-Type: application/problem+json
//	{"title": "Unauthorized", "status": 401, "code": "token-missing", "detail": "..."}
//
// Programs go by the code, which does not change; people read the detail.
type problem struct {
	client.Problem
	// Error is the detail once more, where programs from before there were problems look.
	Error string `json:"error"`
}

// problemOfStatus returns a problem with the code that the status has where no other is known.
func problemOfStatus(status int, detail string) *problem {
	code := client.CodeBadRequest
	switch {
	case status == http.StatusNotFound:
		code = client.CodeNotFound
	case status == http.StatusRequestEntityTooLarge:
		code = client.CodeTooLarge
	case status >= http.StatusInternalServerError:
		code = client.CodeInternal
	}
	return &problem{Problem: client.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}, Error: detail}
}

// complain answers with the problem; its title and its Error need not be set.
func (a answers) complain(w http.ResponseWriter, p problem) {
	if again := p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests; again && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	p.Title, p.Error = http.StatusText(p.Status), p.Detail
	a.write(w, p.Status, problemType, p)
}

// writeProblem answers with it where nobody logs what cannot be sent.
func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// retryAfter is in how many seconds to ask again what cannot be done at the moment.
const retryAfter = "1"

// A refusedProblem is a problem as a handler returns it to huma.
type refusedProblem struct{ told problem }

// refuses returns the error that answers with the problem.
func refuses(p client.Problem) *refusedProblem {
	p.Status = cmp.Or(p.Status, p.Code.Status())
	p.Title = http.StatusText(p.Status)
	return &refusedProblem{problem{p, p.Error()}}
}

// Error returns the words for people.
func (r *refusedProblem) Error() string { return r.told.Detail }

// GetStatus is for huma, as are ContentType and GetHeaders.
func (r *refusedProblem) GetStatus() int { return r.told.Status }

// ContentType is that of problems.
func (r *refusedProblem) ContentType(string) string { return problemType }

// GetHeaders says when to ask again.
func (r *refusedProblem) GetHeaders() http.Header {
	if r.told.Status == http.StatusServiceUnavailable || r.told.Status == http.StatusTooManyRequests {
		return http.Header{"Retry-After": {retryAfter}}
	}
	return nil
}

// MarshalJSON writes the problem.
func (r *refusedProblem) MarshalJSON() ([]byte, error) { return json.Marshal(r.told) }

// problemOf says what the error of a question, or of what was asked for, means to who asked it.
func problemOf(err error) *refusedProblem {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return refuses(*p)
	}
	p := client.Problem{Code: client.CodeInternal, Detail: err.Error()}
	switch {
	case errors.Is(err, raftfsm.ErrNotLeader):
		p.Code = client.CodeNotLeader
	case errors.Is(err, deadletter.ErrTopic), errors.Is(err, deadletter.ErrGone):
		p.Code = client.CodeNotFound
	case errors.Is(err, deadletter.ErrKafka):
		p.Code = client.CodeUnavailable
	case errors.Is(err, query.ErrIDsClosed):
		p.Code = client.CodeIDsClosed
	case errors.Is(err, raftfsm.ErrInDoubt), errors.Is(err, raftfsm.ErrBusy), errors.Is(err, raftfsm.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p.Code = client.CodeUnavailable
	}
	return refuses(p)
}
