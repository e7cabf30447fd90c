package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// Codes of answers that refuse a question. They do not change.
const (
	CodeNotLeader   = "not-leader"   // ask the node that the detail names
	CodeUnavailable = "unavailable"  // ask again
	CodeBadRequest  = "bad-request"  // a filter, a limit or a cursor that means nothing
	CodeNotFound    = "not-found"    // nothing is known of such a message
	CodeIDsClosed   = "ids-not-open" // below feature level 3, or shortly after
)

const (
	messagesPath  = "/v1/messages"
	histogramPath = "/v1/histogram"
)

// usualLimit is how many messages a page has if nobody says otherwise.
const usualLimit = 100

// list answers GET /v1/messages with a client.Page.
func (h *handler) list(w http.ResponseWriter, r *http.Request) {
	request, err := listRequest(r.URL.Query())
	if err != nil {
		h.complain(w, problem{Status: http.StatusBadRequest, Code: CodeBadRequest, Detail: err.Error()})
		return
	}
	request.Payload = readsPayload(r, request.Filter.Topic)
	page, err := h.node.Queries().List(r.Context(), request)
	if err != nil {
		h.complain(w, problemOf(err))
		return
	}
	h.answer(w, http.StatusOK, page)
}

// A question is the parameters of a request.
type question struct{ asked url.Values }

// check refuses parameters that there are not, and those that come twice; a state may.
func (q question) check(names ...string) error {
	for name, values := range q.asked {
		switch {
		case !slices.Contains(names, name):
			return fmt.Errorf("%q is no parameter: there are %s", name, strings.Join(names, ", "))
		case len(values) > 1 && name != "state":
			return fmt.Errorf("%s is there %d times: give it once", name, len(values))
		}
	}
	return nil
}

// number returns the parameter's, or usual if it is not there.
func (q question) number(name string, usual int64) (int64, error) {
	if !q.asked.Has(name) {
		return usual, nil
	}
	n, err := strconv.ParseInt(q.asked.Get(name), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: it is a number; times are epoch milliseconds", name, q.asked.Get(name))
	}
	return n, nil
}

func (q question) filter() (f client.Filter, err error) {
	f = client.Filter{Topic: q.asked.Get("topic"), Prefix: q.asked.Get("prefix"), Target: q.asked.Get("target"), States: q.asked["state"]}
	var err2 error
	f.From, err = q.number("from", 0)
	f.To, err2 = q.number("to", 0)
	return f, cmp.Or(err, err2)
}

func listRequest(asked url.Values) (query.ListRequest, error) {
	q := question{asked}
	if err := q.check("topic", "prefix", "target", "from", "to", "state", "limit", "cursor"); err != nil {
		return query.ListRequest{}, err
	}
	filter, err := q.filter()
	if err != nil {
		return query.ListRequest{}, err
	}
	limit, err := q.number("limit", usualLimit)
	limit = min(max(limit, 0), query.MostListed+1) // the Desk says what is allowed
	return query.ListRequest{Filter: filter, Cursor: asked.Get("cursor"), Limit: int(limit)}, err
}

// histogram answers GET /v1/histogram with a client.Histogram.
func (h *handler) histogram(w http.ResponseWriter, r *http.Request) {
	request, err := histogramRequest(r.URL.Query())
	if err != nil {
		h.complain(w, problem{Status: http.StatusBadRequest, Code: CodeBadRequest, Detail: err.Error()})
		return
	}
	counted, err := h.node.Queries().Histogram(r.Context(), request)
	if err != nil {
		h.complain(w, problemOf(err))
		return
	}
	h.answer(w, http.StatusOK, counted)
}

func histogramRequest(asked url.Values) (request query.HistogramRequest, err error) {
	q := question{asked}
	if err := q.check("topic", "prefix", "target", "from", "to", "state", "bounds", "by"); err != nil {
		return request, err
	}
	if by := asked.Get("by"); by != "" && by != "target" {
		return request, fmt.Errorf("by is %q: it is target, or not there", by)
	}
	request.ByTarget = asked.Get("by") == "target"
	if text := asked.Get("bounds"); text != "" {
		for bound := range strings.SplitSeq(text, ",") {
			ms, err := strconv.ParseInt(bound, 10, 64)
			if err != nil {
				return request, fmt.Errorf("bounds has %q: they are epoch milliseconds, with commas in between", bound)
			}
			request.Bounds = append(request.Bounds, ms)
		}
	}
	request.Filter, err = q.filter()
	return request, err
}

// message answers GET /v1/messages/{topic}/{id...}: with a client.Life, and of a message that nobody chose an
// id for with a client.Finding.
func (h *handler) message(w http.ResponseWriter, r *http.Request) {
	topic, id := r.PathValue("topic"), r.PathValue("id")
	if origin, ok := query.ParseOrigin(id); ok && origin.Topic == topic {
		found, err := h.node.Queries().Find(r.Context(), origin, r.URL.Query().Get("cursor"))
		switch {
		case err != nil:
			h.complain(w, problemOf(err))
		case found.Message == nil && found.Next == "":
			h.complain(w, problem{Status: http.StatusNotFound, Code: CodeNotFound, Detail: fmt.Sprintf("no message %s is pending: what became of those without an id of their own is not kept", id)})
		default:
			if !readsPayload(r, topic) {
				withoutPayload(found.Message)
			}
			h.answer(w, http.StatusOK, found)
		}
		return
	}
	life, err := h.node.Queries().Get(r.Context(), topic, id)
	switch {
	case err != nil:
		h.complain(w, problemOf(err))
	case life.Message == nil && len(life.Outcomes) == 0:
		h.complain(w, problem{Status: http.StatusNotFound, Code: CodeNotFound,
			Detail: fmt.Sprintf("no message of %s with the id %q is known: there never was one, or it ended longer ago than outcomes are kept", topic, id)})
	default:
		if !readsPayload(r, topic) {
			withoutPayload(life.Message)
		}
		h.answer(w, http.StatusOK, life)
	}
}

func withoutPayload(m *client.Message) {
	if m != nil {
		m.Payload = nil
	}
}

// readsPayload reports whether the caller may see what messages of the topic hold.
func readsPayload(r *http.Request, topic string) bool {
	v, ok := r.Context().Value(visitKey{}).(*visit)
	return ok && v.who.Allows(access.ReadPayload, access.Object{Topic: topic})
}

// problemOf says what the error of a question means to who asked it.
func problemOf(err error) problem {
	p := problem{Status: http.StatusInternalServerError, Code: "internal", Detail: err.Error()}
	switch {
	case errors.Is(err, raftfsm.ErrNotLeader):
		p.Status, p.Code = http.StatusServiceUnavailable, CodeNotLeader
	case errors.Is(err, query.ErrCursor), errors.Is(err, query.ErrFilter):
		p.Status, p.Code = http.StatusBadRequest, CodeBadRequest
	case errors.Is(err, query.ErrIDsClosed):
		p.Status, p.Code = http.StatusConflict, CodeIDsClosed
	case errors.Is(err, raftfsm.ErrInDoubt), errors.Is(err, raftfsm.ErrBusy), errors.Is(err, raftfsm.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p.Status, p.Code = http.StatusServiceUnavailable, CodeUnavailable
	}
	return p
}
