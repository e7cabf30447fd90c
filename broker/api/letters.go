package api

import (
	"context"
	"strconv"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/client"
)

const lettersPath = "/v1/dead-letters"

// An AnyNodeInput lets clients that ask all for stale answers ask here, too.
type AnyNodeInput struct {
	Stale bool `query:"stale" doc:"makes no difference: the node that is asked answers, from Kafka and from what it has itself"`
}

type lettersInput struct {
	AnyNodeInput
	Topic  string `query:"topic" doc:"the delay topic that they came by; absent: any, which needs a token for all"`
	Target string `query:"target" doc:"the target that they were for"`
	Code   string `query:"code" doc:"why they are dead letters"`
	From   int64  `query:"from" doc:"they were written then or later, epoch milliseconds"`
	To     int64  `query:"to" doc:"they were written before then, epoch milliseconds"`
	Limit  int    `query:"limit" doc:"dead letters of a page, 1 to 1000, 100 if it is absent"`
	Cursor string `query:"cursor" doc:"next of the page before"`
}

type lettersOutput struct{ Body client.DeadLetterPage }

// letters answers GET /v1/dead-letters.
func (h *handler) letters(ctx context.Context, in *lettersInput) (*lettersOutput, error) {
	filter, err := checked(ctx, client.Filter{Topic: in.Topic, Target: in.Target, Code: in.Code, From: in.From, To: in.To})
	if err != nil {
		return nil, err
	}
	request := deadletter.ListRequest{Filter: filter, Cursor: in.Cursor, Limit: in.Limit}
	if !asked(ctx, "limit") {
		request.Limit = usualLimit
	}
	page, err := h.node.DeadLetters().List(ctx, request)
	if err != nil {
		return nil, problemOf(err)
	}
	return &lettersOutput{page}, nil
}

// A PlaceInput is where a dead letter lies.
type PlaceInput struct {
	Topic     string `path:"topic" doc:"the dead-letter topic"`
	Partition int32  `path:"partition"`
	Offset    int64  `path:"offset"`
}

// place returns it, or a refusal if nothing can lie there.
func (p PlaceInput) place() (deadletter.Place, error) {
	for _, field := range []struct {
		name  string
		value int64
	}{{"partition", int64(p.Partition)}, {"offset", p.Offset}} {
		if field.value < 0 {
			return deadletter.Place{}, wrong(field.name, strconv.FormatInt(field.value, 10), "is below zero: give it as the list of dead letters tells it")
		}
	}
	return deadletter.Place{Topic: p.Topic, Partition: p.Partition, Offset: p.Offset}, nil
}

type letterInput struct {
	PlaceInput
	AnyNodeInput
}

type letterOutput struct{ Body client.DeadLetter }

// letter answers GET /v1/dead-letters/{topic}/{partition}/{offset}.
func (h *handler) letter(ctx context.Context, in *letterInput) (*letterOutput, error) {
	at, err := in.place()
	if err != nil {
		return nil, err
	}
	letter, err := h.node.DeadLetters().Get(ctx, at)
	if err != nil {
		return nil, problemOf(err)
	}
	who := visitOf(ctx).who
	of := access.Object{Topic: letter.DelayTopic, Target: letter.Target} // of a foreign one all topics
	if !who.Allows(access.View, of) {
		return nil, refuses(client.Problem{Code: client.CodeForbidden, Detail: lacking(who, need{permission: access.View})})
	}
	if !who.Allows(access.ReadPayload, of) {
		letter.Payload = nil
	}
	return &letterOutput{letter}, nil
}

type replayInput struct {
	PlaceInput
	Body client.ReplayRequest
}

// replay answers POST /v1/dead-letters/{topic}/{partition}/{offset}/replay.
func (h *handler) replay(ctx context.Context, in *replayInput) (*answerOutput, error) {
	note(ctx, "reason", in.Body.Reason, "again", in.Body.Again)
	at, err := in.place()
	if err != nil {
		return nil, err
	}
	who := visitOf(ctx).who
	var about []any // of what was asked last: the dead letter, or the message that it becomes
	defer func() { note(ctx, about...) }()
	may := func(r *client.ScheduleRequest, target string) *client.Problem {
		isLetter := about == nil
		about = []any{"topic", r.Topic, "to", target}
		switch {
		case who.Allows(access.Operate, access.Object{Topic: r.Topic, Target: target}):
			return nil
		case isLetter: // whom it is not for is not told what it is of
			return &client.Problem{Code: client.CodeForbidden, Detail: lacking(who, need{permission: access.Operate})}
		}
		return forbidden(who, r.Topic, target)
	}
	answer, err := h.node.DeadLetters().Replay(ctx, h.node.Orders(), may, at, in.Body)
	if err != nil {
		refused := problemOf(err)
		note(ctx, "code", refused.told.Code)
		return nil, refused
	}
	return told(ctx, answer, nil)
}
