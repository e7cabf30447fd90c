package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

const (
	batchesPath = "/v1/batches"
	// mostMessage and mostBatch bound the bodies of requests that schedule, in bytes.
	mostMessage = 4 << 20
	mostBatch   = 16 << 20
)

// A ConditionInput says which message must wait.
type ConditionInput struct {
	IfMatch string `header:"If-Match" doc:"the ETag of the message that must wait, or * for any"`
}

type ScheduleConditionInput struct {
	ConditionInput
	IfNoneMatch    string `header:"If-None-Match" doc:"*: no message may wait under the id"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"1 to 256 bytes: the same request with the same key takes effect once, another one is refused; it is known as long as outcomes are"`
}

type scheduleInput struct {
	ScheduleConditionInput
	Body client.ScheduleRequest
}

type putInput struct {
	NameInput
	ScheduleConditionInput
	Body client.ScheduleRequest
}

type answerOutput struct {
	ETag string `header:"ETag" doc:"the seq of the message"`
	Body client.Answer
}

// told is the answer, or the problem, and notes it.
func told(ctx context.Context, answer client.Answer, err error) (*answerOutput, error) {
	if err != nil {
		refused := problemOf(err)
		note(ctx, "code", refused.told.Code)
		return nil, refused
	}
	note(ctx, "code", answer.Code, "seq", answer.Seq)
	return &answerOutput{etag(answer.Seq), answer}, nil
}

// schedule answers POST /v1/messages.
func (h *handler) schedule(ctx context.Context, in *scheduleInput) (*answerOutput, error) {
	return h.scheduleOne(ctx, in.Body, in.ScheduleConditionInput)
}

// put answers PUT /v1/messages/{topic}/{id}.
func (h *handler) put(ctx context.Context, in *putInput) (*answerOutput, error) {
	for _, field := range []struct{ name, body, path string }{{"topic", in.Body.Topic, in.Topic}, {"id", in.Body.ID, in.ID}} {
		if field.body != "" && field.body != field.path {
			return nil, wrong(field.name, field.body, "is not that of the path, "+strconv.Quote(field.path)+": leave it out")
		}
	}
	in.Body.Topic, in.Body.ID = in.Topic, in.ID
	return h.scheduleOne(ctx, in.Body, in.ScheduleConditionInput)
}

func (h *handler) scheduleOne(ctx context.Context, r client.ScheduleRequest, in ScheduleConditionInput) (*answerOutput, error) {
	note(ctx, "topic", r.Topic, "id", r.ID, "to", r.DeliverTo)
	condition, problem := in.condition()
	switch {
	case problem != nil:
		return nil, refuses(*problem)
	case condition != "" && r.If != "":
		return nil, wrong("if", r.If, "is given beside If-Match or If-None-Match: give one of them")
	case in.IdempotencyKey != "" && r.IdempotencyKey != "" && in.IdempotencyKey != r.IdempotencyKey:
		return nil, wrong("idempotency_key", r.IdempotencyKey, "is not that of the header Idempotency-Key: give one of them")
	}
	r.If = cmp.Or(r.If, condition)
	r.IdempotencyKey = cmp.Or(r.IdempotencyKey, in.IdempotencyKey)
	item := h.scheduleAll(ctx, []client.ScheduleRequest{r}, func(_, target string) { note(ctx, "target", target) })[0]
	if item.Problem != nil {
		return told(ctx, client.Answer{}, item.Problem)
	}
	return told(ctx, *item.Answer, nil)
}

// scheduleAll schedules what the caller may, and tells for which topics and targets the messages are that could
// be.
func (h *handler) scheduleAll(ctx context.Context, requests []client.ScheduleRequest, asked func(topic, target string)) []client.BatchItem {
	who := visitOf(ctx).who
	items := h.node.Orders().Schedule(ctx, func(r *client.ScheduleRequest, target string) *client.Problem {
		asked(r.Topic, target)
		if !who.Allows(access.Operate, access.Object{Topic: r.Topic, Target: target}) {
			return forbidden(who, r.Topic, target)
		}
		replaces := r.ID != "" && r.If != client.ConditionAbsent
		if replaces && !who.Allows(access.Operate, access.Object{Topic: r.Topic}) {
			return &client.Problem{Code: client.CodeForbidden, Field: "if", Value: r.If,
				Detail: "the token is for some targets, and a message for another one may wait under this id: schedule on the condition that none waits, with If-None-Match: *"}
		}
		return nil
	}, requests)
	return items
}

type batchInput struct{ Body client.BatchRequest }

type batchOutput struct{ Body client.BatchAnswer }

// batch answers POST /v1/batches: each message for itself.
func (h *handler) batch(ctx context.Context, in *batchInput) (*batchOutput, error) {
	n := len(in.Body.Messages)
	note(ctx, "messages", n)
	if n < 1 || n > client.MostBatched {
		return nil, wrong("messages", strconv.Itoa(n), fmt.Sprintf("are too few or too many: send 1 to %d", client.MostBatched))
	}
	counts := map[string]int{} // by topic and target
	items := h.scheduleAll(ctx, in.Body.Messages, func(topic, target string) { counts[topic+" to "+target]++ })
	note(ctx, "of", inWords(counts))
	refused := 0
	for i := range items {
		if p := items[i].Problem; p != nil {
			*p = refuses(*p).told.Problem
			refused++
		}
	}
	note(ctx, "refused", refused)
	return &batchOutput{client.BatchAnswer{Answers: items}}, nil
}

// mostNamed bounds how many topics and targets of a batch the log names.
const mostNamed = 20

// inWords says how many there are of each, those of which there are most first.
func inWords(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var words []string
	for _, name := range names[:min(len(names), mostNamed)] {
		words = append(words, fmt.Sprintf("%d %s", counts[name], name))
	}
	if more := len(names) - mostNamed; more > 0 {
		words = append(words, fmt.Sprintf("and of %d others", more))
	}
	return strings.Join(words, ", ")
}

type changeInput struct {
	NameInput
	ConditionInput
	Body client.ChangeRequest
}

// change answers PATCH /v1/messages/{topic}/{id}.
func (h *handler) change(ctx context.Context, in *changeInput) (*answerOutput, error) {
	noteChange(ctx, &in.Body)
	condition, problem := in.order()
	if problem != nil {
		return nil, refuses(*problem)
	}
	answer, err := h.node.Orders().Change(ctx, in.Topic, in.ID, condition, in.Body)
	return told(ctx, answer, err)
}

// noteChange notes what is to be different: of what is delivered only which parts, since that is for those who
// may read it.
func noteChange(ctx context.Context, r *client.ChangeRequest) {
	var parts []string
	for _, part := range []struct {
		name  string
		given bool
	}{{"key", !r.Key.IsZero()}, {"value", !r.Value.IsZero()}, {"headers", r.Headers != nil}} {
		if part.given {
			parts = append(parts, part.name)
		}
	}
	partition := ""
	if r.Partition != nil {
		partition = strconv.Itoa(int(*r.Partition))
	}
	noteGiven(ctx, "reason", r.Reason, "deliver_at", r.DeliverAt, "deliver_after", r.DeliverAfter, "deliver_to", r.DeliverTo, "partition", partition,
		"expires_at", r.ExpiresAt, "expires_after", r.ExpiresAfter, "other", strings.Join(parts, ","))
}

type reasonInput struct {
	NameInput
	ConditionInput
	Reason string `query:"reason" doc:"why, for the log of the cluster"`
}

// cancel answers DELETE /v1/messages/{topic}/{id}.
func (h *handler) cancel(ctx context.Context, in *reasonInput) (*answerOutput, error) {
	note(ctx, "reason", in.Reason)
	condition, problem := in.order()
	if problem != nil {
		return nil, refuses(*problem)
	}
	answer, err := h.node.Orders().Cancel(ctx, in.Topic, in.ID, condition)
	return told(ctx, answer, err)
}

// now answers POST /v1/messages/{topic}/{id}/now.
func (h *handler) now(ctx context.Context, in *reasonInput) (*answerOutput, error) {
	note(ctx, "reason", in.Reason)
	condition, problem := in.order()
	if problem != nil {
		return nil, refuses(*problem)
	}
	answer, err := h.node.Orders().Now(ctx, in.Topic, in.ID, condition)
	return told(ctx, answer, err)
}

// order returns the condition as who carries it out takes it.
func (c *ConditionInput) order() (condition order.Condition, problem *client.Problem) {
	text, problem := c.condition()
	switch {
	case problem != nil:
	case text == client.ConditionPresent:
		condition.If = raftfsm.Present
	case text != "":
		condition.If = raftfsm.Exactly
		condition.Seq, _ = strconv.ParseUint(text, 10, 64) // as condition has read it
	}
	return condition, problem
}

// condition returns what If-Match says, as a request has it: "", client.ConditionPresent or a seq.
func (c *ConditionInput) condition() (string, *client.Problem) {
	switch c.IfMatch {
	case "":
		return "", nil
	case "*":
		return client.ConditionPresent, nil
	}
	seq, quoted := strings.CutPrefix(c.IfMatch, `"`)
	seq, ended := strings.CutSuffix(seq, `"`)
	if n, err := strconv.ParseUint(seq, 10, 64); err != nil || n == 0 || !quoted || !ended {
		return "", client.BadField("If-Match", c.IfMatch, `is no ETag of a message: give one, such as "42" with its quotes, or *`)
	}
	return seq, nil
}

// condition returns what both headers say.
func (c *ScheduleConditionInput) condition() (string, *client.Problem) {
	switch {
	case c.IfNoneMatch == "":
		return c.ConditionInput.condition()
	case c.IfNoneMatch != "*":
		return "", client.BadField("If-None-Match", c.IfNoneMatch, "is not *: that no message may wait is all it can say here")
	case c.IfMatch != "":
		return "", client.BadField("If-None-Match", c.IfNoneMatch, "is given beside If-Match: give one of them")
	}
	return client.ConditionAbsent, nil
}

// wrong refuses a request in which a field cannot be as it is; the words tell the remedy.
func wrong(field, value, words string) *refusedProblem {
	return refuses(*client.BadField(field, value, words))
}
