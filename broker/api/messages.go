package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
)

// Codes of answers that refuse a question. They do not change.
const (
	CodeNotLeader   = string(client.CodeNotLeader)   // ask another node
	CodeUnavailable = string(client.CodeUnavailable) // ask again
	CodeBadRequest  = string(client.CodeBadRequest)  // a filter, a limit or a cursor that means nothing
	CodeNotFound    = string(client.CodeNotFound)    // nothing is known of such a message
	CodeIDsClosed   = string(client.CodeIDsClosed)   // below feature level 3, or shortly after
)

const (
	messagesPath  = "/v1/messages"
	countPath     = "/v1/count"
	histogramPath = "/v1/histogram"
)

// usualLimit is how many messages a page has if nobody says otherwise.
const usualLimit = 100

// A StaleInput says who may answer; status and explain are always answered by the node that is asked. Huma reads what it embeds if it is exported, as those below.
type StaleInput struct {
	Stale bool `query:"stale" doc:"true: this node answers from what it has itself, which may be behind; otherwise the answer has all that was acknowledged to anybody before"`
}

// desk returns who answers.
func (h *handler) desk(stale bool) *query.Desk {
	if stale {
		return h.node.Queries().Local()
	}
	return h.node.Queries()
}

// A FilterInput says which messages are meant.
type FilterInput struct {
	StaleInput
	Topic  string   `query:"topic" doc:"their delay topic; absent: any, which needs a token for all"`
	Prefix string   `query:"prefix" doc:"what their ids begin with, chosen ones or topic/partition/offset"`
	Target string   `query:"target" doc:"their target topic"`
	From   int64    `query:"from" doc:"they are due then or later, epoch milliseconds"`
	To     int64    `query:"to" doc:"they are due before then, epoch milliseconds"`
	States []string `query:"state,explode" doc:"states they are in; it may be given several times. Dead letters that their topic refuses are aside" enum:"waiting,parked,paused,claimed,aside,expired"`
}

func (f *FilterInput) filter(ctx context.Context) (client.Filter, error) {
	return checked(ctx, client.Filter{Topic: f.Topic, Prefix: f.Prefix, Target: f.Target, From: f.From, To: f.To, States: f.States})
}

// checked returns the filter of a request if its times are milliseconds. One that is there and 0, as where a variable
// was not set, would count for nothing.
func checked(ctx context.Context, f client.Filter) (client.Filter, error) {
	for _, at := range []struct {
		field string
		time  int64
	}{{"from", f.From}, {"to", f.To}} {
		if at.time == 0 && asked(ctx, at.field) {
			return f, wrong(at.field, "0", "would count as left out: write epoch milliseconds, or leave it out")
		}
		if err := inMillis(at.field, at.time); err != nil {
			return f, err
		}
	}
	return f, nil
}

// inMillis refuses a time that is seconds by mistake.
func inMillis(field string, at int64) error {
	if p := client.CheckMillis(field, at); p != nil {
		return refuses(*p)
	}
	return nil
}

type listInput struct {
	FilterInput
	Limit  int    `query:"limit" doc:"messages of a page, 1 to 1000, 100 if it is absent; of a stream, messages in all, without a bound if it is absent"`
	Cursor string `query:"cursor" doc:"next of the page before"`
	Accept string `header:"Accept" doc:"application/x-ndjson streams all pages: a message a line, and at the end {\"end\": true}, or {\"cursor\": ...} where to go on"`
}

// list answers GET /v1/messages.
func (h *handler) list(ctx context.Context, in *listInput) (*huma.StreamResponse, error) {
	filter, err := in.filter(ctx)
	if err != nil {
		return nil, err
	}
	request := query.ListRequest{Filter: filter, Cursor: in.Cursor, Limit: in.Limit, Payload: readsPayload(ctx, in.Topic, in.Target)}
	if strings.Contains(in.Accept, ndjsonType) {
		return h.stream(ctx, h.desk(in.Stale), request)
	}
	if !asked(ctx, "limit") {
		request.Limit = usualLimit
	}
	page, err := h.desk(in.Stale).List(ctx, request)
	if err != nil {
		return nil, problemOf(err)
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) { h.answer(writerOf(ctx), 200, page) }}, nil
}

type countOutput struct{ Body client.Count }

// count answers GET /v1/count.
func (h *handler) count(ctx context.Context, in *FilterInput) (*countOutput, error) {
	filter, err := in.filter(ctx)
	if err != nil {
		return nil, err
	}
	count, err := h.desk(in.Stale).Count(ctx, filter)
	if err != nil {
		return nil, problemOf(err)
	}
	return &countOutput{count}, nil
}

type histogramInput struct {
	FilterInput
	Bounds string `query:"bounds" doc:"epoch milliseconds that part the time, rising, with commas in between; absent: there is one bucket"`
	By     string `query:"by" doc:"target: each target apart"`
}

type histogramOutput struct{ Body client.Histogram }

// histogram answers GET /v1/histogram.
func (h *handler) histogram(ctx context.Context, in *histogramInput) (*histogramOutput, error) {
	filter, err := in.filter(ctx)
	if err != nil {
		return nil, err
	}
	request := query.HistogramRequest{Filter: filter, ByTarget: in.By == "target"}
	if in.By != "" && in.By != "target" {
		return nil, wrong("by", in.By, "is not target: write that, or leave it out")
	}
	if in.Bounds != "" {
		for bound := range strings.SplitSeq(in.Bounds, ",") {
			ms, err := strconv.ParseInt(bound, 10, 64)
			if err != nil {
				return nil, wrong("bounds", bound, "is no time: they are epoch milliseconds, with commas in between")
			}
			if err := inMillis("bounds", ms); err != nil {
				return nil, err
			}
			request.Bounds = append(request.Bounds, ms)
		}
	}
	counted, err := h.desk(in.Stale).Histogram(ctx, request)
	if err != nil {
		return nil, problemOf(err)
	}
	return &histogramOutput{counted}, nil
}

// A NameInput names a message.
type NameInput struct {
	Topic string `path:"topic" doc:"the delay topic"`
	ID    string `path:"id" doc:"the id, with a slash as %2F"`
}

type messageInput struct {
	StaleInput
	NameInput
	Cursor string `query:"cursor" doc:"where a search for topic/partition/offset goes on"`
}

type messageOutput struct {
	ETag string `header:"ETag" doc:"the seq of the message that waits"`
	Body any
}

// message answers GET /v1/messages/{topic}/{id}: with a client.Life, and of a message that nobody chose an
// id for with a client.Finding.
func (h *handler) message(ctx context.Context, in *messageInput) (*messageOutput, error) {
	if origin, ok := query.ParseOrigin(in.ID); ok && origin.Topic == in.Topic {
		found, err := h.desk(in.Stale).Find(ctx, origin, in.Cursor)
		switch {
		case err != nil:
			return nil, problemOf(err)
		case found.Message == nil && found.Next == "":
			return nil, refuses(client.Problem{Code: client.CodeNotFound, Detail: fmt.Sprintf("no message %s is pending: what became of those without an id of their own is not kept", in.ID)})
		}
		return &messageOutput{shown(ctx, found.Message), found}, nil
	}
	life, err := h.desk(in.Stale).Get(ctx, in.Topic, in.ID)
	switch {
	case err != nil:
		return nil, problemOf(err)
	case life.Message == nil && len(life.Outcomes) == 0:
		if why := h.node.Impossible(in.Topic, in.ID); why != "" {
			return nil, refuses(client.Problem{Code: client.CodeNotFound, Since: life.Since, Detail: why})
		}
		return nil, refuses(client.Problem{Code: client.CodeNotFound, Since: life.Since,
			Detail: fmt.Sprintf("no message of %s with the id %q is known: there never was one, or it ended longer ago than outcomes are kept", in.Topic, in.ID)})
	}
	return &messageOutput{shown(ctx, life.Message), life}, nil
}

// shown takes the payload out of a message, unless the caller may see it, and returns its ETag.
func shown(ctx context.Context, m *client.Message) string {
	if m == nil {
		return ""
	}
	if !readsPayload(ctx, m.Topic, m.Target) {
		m.Payload = nil
	}
	return etag(m.Seq)
}

// etag is a seq as ETag has it.
func etag(seq uint64) string { return `"` + strconv.FormatUint(seq, 10) + `"` }

// readsPayload reports whether the caller may see what messages of the topic for the target hold; "": of all.
func readsPayload(ctx context.Context, topic, target string) bool {
	return visitOf(ctx).who.Allows(access.ReadPayload, access.Object{Topic: topic, Target: target})
}
