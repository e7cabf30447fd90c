package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

const (
	replacePath = "/v1/cluster/replace"
	raisePath   = "/v1/cluster/raise"
)

// mostRequested bounds the body of a request in bytes, where nothing else is said.
const mostRequested = 64 << 10

// replaceRequest is the body of POST /v1/cluster/replace.
type replaceRequest struct {
	Member string `json:"member" doc:"the id of one of cluster.members, which has lost its disk"`
	// Forwarded is set by nodes of versions that said so in the body; it means nothing any more.
	Forwarded bool `json:"forwarded,omitempty" hidden:"true"`
}

type replaceInput struct{ Body replaceRequest }

type replaceOutput struct{ Body replaceRequest }

// replace answers POST /v1/cluster/replace.
func (h *handler) replace(ctx context.Context, in *replaceInput) (*replaceOutput, error) {
	note(ctx, "member", in.Body.Member)
	if in.Body.Member == "" {
		return nil, wrong("member", "", `is missing: send {"member": "ID"} with the id of one of cluster.members`)
	}
	if err := h.node.Replace(ctx, in.Body.Member); err != nil {
		return nil, refusedByNode(err)
	}
	return &replaceOutput{replaceRequest{Member: in.Body.Member}}, nil
}

// raiseRequest is the body of POST /v1/cluster/raise.
type raiseRequest struct {
	Forwarded bool `json:"forwarded,omitempty" hidden:"true"` // as above
}

type raiseInput struct{ Body *raiseRequest }

type raiseOutput struct{ Body broker.LevelRaise }

// raise answers POST /v1/cluster/raise.
func (h *handler) raise(ctx context.Context, _ *raiseInput) (*raiseOutput, error) {
	level, err := h.node.RaiseLevel(ctx)
	if err != nil {
		return nil, refusedByNode(err)
	}
	return &raiseOutput{level}, nil
}

// refusedByNode is the answer where the node says in words why it does not do what it is told to.
func refusedByNode(err error) error {
	if errors.Is(err, raftfsm.ErrInDoubt) { // of a question it would be unavailable: ask again
		return refuses(client.Problem{Code: client.CodeInDoubt, Detail: err.Error()})
	}
	told := problemOf(err)
	if told.GetStatus() != http.StatusInternalServerError {
		return told
	}
	return refuses(client.Problem{Code: client.CodeRefused, Detail: err.Error()})
}
