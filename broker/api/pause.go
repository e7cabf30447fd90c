package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/carillonmq/carillon/broker"
)

// pauseRequest is the body of a POST that pauses or resumes; a resume has no words.
type pauseRequest struct {
	// Who is what somebody without a token calls themselves; with one it is the token's name.
	Who       string `json:"who,omitempty"`
	Why       string `json:"why,omitempty"`
	Forwarded bool   `json:"forwarded,omitempty"` // as of a replaceRequest
}

// pausePath returns /v1/topics/NAME/VERB, or that of a target.
func pausePath(kind, name, verb string) string { return "/v1/" + kind + "s/" + name + "/" + verb }

func (h *handler) pause(w http.ResponseWriter, r *http.Request) {
	h.changePause(w, r, "pause", h.node.Pause)
}

func (h *handler) resume(w http.ResponseWriter, r *http.Request) {
	h.changePause(w, r, "resume", h.node.Resume)
}

func (h *handler) changePause(w http.ResponseWriter, r *http.Request, verb string, carryOut func(context.Context, broker.Pause) (broker.PauseChange, error)) {
	var request pauseRequest
	if err := decode(w, r, &request); err != nil && !errors.Is(err, io.EOF) {
		h.refuse(w, http.StatusBadRequest, `the body is not {"who": "NAME", "why": "TEXT"}`)
		return
	}
	p := broker.Pause{Kind: broker.PauseTopic, Name: r.PathValue("topic"), Who: request.Who, Why: request.Why}
	if target := r.PathValue("target"); target != "" {
		p.Kind, p.Name = broker.PauseTarget, target
	}
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok && (v.who.ID != "" || p.Who == "") {
		p.Who = cmp.Or(v.who.Name, p.Who)
	}
	note(r, "why", p.Why, "forwarded", request.Forwarded)
	var change broker.PauseChange
	done := h.onLeader(w, r, order{
		forwarded: request.Forwarded,
		carryOut: func(ctx context.Context) (err error) {
			change, err = carryOut(ctx, p)
			return err
		},
		passOn: func(ctx context.Context, leader *Client) (err error) {
			change, err = leader.changePause(ctx, verb, p, pauseRequest{Who: p.Who, Why: p.Why, Forwarded: true})
			return err
		},
	})
	if done {
		h.answer(w, http.StatusOK, change)
	}
}
