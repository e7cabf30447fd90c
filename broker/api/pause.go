package api

import (
	"cmp"
	"context"
	"slices"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
)

// pauseRequest is the body of a POST that pauses or resumes; a resume has no words.
type pauseRequest struct {
	// Who is what somebody without a token calls themselves; with one it is the token's name.
	Who       string `json:"who,omitempty" doc:"what somebody without a token calls themselves; with one it is the token's name"`
	Why       string `json:"why,omitempty" wanted:"true" doc:"why, for those who find it paused; a pause needs it"`
	Forwarded bool   `json:"forwarded,omitempty" hidden:"true"` // as of a replaceRequest
}

// pausePath returns /v1/topics/NAME/VERB, or that of a target.
func pausePath(kind, name, verb string) string { return "/v1/" + kind + "s/" + name + "/" + verb }

type topicPauseInput struct {
	Topic string `path:"topic" doc:"the delay topic"`
	Body  *pauseRequest
}

type targetPauseInput struct {
	Target string `path:"target" doc:"the target topic"`
	Body   *pauseRequest
}

type pauseOutput struct{ Body client.PauseChange }

// pauses answers what pauses or resumes a delay topic, and is carried out so.
func pausesTopic(carryOut func(context.Context, client.Pause) (client.PauseChange, error)) func(context.Context, *topicPauseInput) (*pauseOutput, error) {
	return func(ctx context.Context, in *topicPauseInput) (*pauseOutput, error) {
		return changePause(ctx, client.PauseTopic, in.Topic, in.Body, carryOut)
	}
}

// pausesTarget does the same for a target.
func pausesTarget(carryOut func(context.Context, client.Pause) (client.PauseChange, error)) func(context.Context, *targetPauseInput) (*pauseOutput, error) {
	return func(ctx context.Context, in *targetPauseInput) (*pauseOutput, error) {
		return changePause(ctx, client.PauseTarget, in.Target, in.Body, carryOut)
	}
}

func changePause(ctx context.Context, kind, name string, request *pauseRequest, carryOut func(context.Context, client.Pause) (client.PauseChange, error)) (*pauseOutput, error) {
	p := client.Pause{Kind: kind, Name: name}
	if request != nil {
		p.Who, p.Why = request.Who, request.Why
	}
	if who := visitOf(ctx).who; who.ID != "" || p.Who == "" {
		p.Who = cmp.Or(who.Name, p.Who)
	}
	note(ctx, "why", p.Why)
	change, err := carryOut(ctx, p)
	if err != nil {
		return nil, refusedByNode(err)
	}
	return &pauseOutput{change}, nil
}

type placesOutput struct{ Body client.Places }

// places answers GET /v1/topics or /v1/targets, with those that the caller may see.
func (h *handler) places(kind string) func(context.Context, *StaleInput) (*placesOutput, error) {
	return func(ctx context.Context, in *StaleInput) (*placesOutput, error) {
		places, err := h.node.Places(ctx, h.desk(in.Stale), kind)
		if err != nil {
			return nil, problemOf(err)
		}
		who := visitOf(ctx).who
		places.Places = slices.DeleteFunc(places.Places, func(p client.Place) bool {
			o := access.Object{Target: p.Name}
			if kind == client.PauseTopic {
				o = access.Object{Topic: p.Name}
			}
			return !who.Allows(access.View, o)
		})
		return &placesOutput{places}, nil
	}
}
