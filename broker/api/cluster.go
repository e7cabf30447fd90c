package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/carillonmq/carillon/broker"
)

// replaceRequest is the body of POST /v1/cluster/replace.
type replaceRequest struct {
	Member string `json:"member"`
	// Forwarded is set by a node that passes the request on, once: the members may
	// disagree on who leads.
	Forwarded bool `json:"forwarded,omitempty"`
}

// raiseRequest is the body of POST /v1/cluster/raise.
type raiseRequest struct {
	Forwarded bool `json:"forwarded,omitempty"` // as above
}

const (
	replacePath = "/v1/cluster/replace"
	raisePath   = "/v1/cluster/raise"
)

// mostRequested bounds the body of a request in bytes.
const mostRequested = 64 << 10

// decode reads the body of a request into the given value, and nothing else.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostRequested))
	body.DisallowUnknownFields()
	return body.Decode(into)
}

func (h *handler) replace(w http.ResponseWriter, r *http.Request) {
	var request replaceRequest
	if err := decode(w, r, &request); err != nil || request.Member == "" {
		h.refuse(w, http.StatusBadRequest, `the body is not {"member": "ID"} with the id of one of cluster.members`)
		return
	}
	note(r, "member", request.Member, "forwarded", request.Forwarded)
	done := h.onLeader(w, r, order{
		forwarded: request.Forwarded,
		carryOut:  func(ctx context.Context) error { return h.node.Replace(ctx, request.Member) },
		passOn: func(ctx context.Context, leader *Client) error {
			return leader.post(ctx, replacePath, replaceRequest{Member: request.Member, Forwarded: true}, nil)
		},
	})
	if done {
		h.answer(w, http.StatusOK, replaceRequest{Member: request.Member})
	}
}

func (h *handler) raise(w http.ResponseWriter, r *http.Request) {
	var request raiseRequest
	if err := decode(w, r, &request); err != nil && !errors.Is(err, io.EOF) {
		h.refuse(w, http.StatusBadRequest, "the body is not {}")
		return
	}
	note(r, "forwarded", request.Forwarded)
	var level broker.LevelRaise
	done := h.onLeader(w, r, order{
		forwarded: request.Forwarded,
		carryOut: func(ctx context.Context) (err error) {
			level, err = h.node.RaiseLevel(ctx)
			return err
		},
		passOn: func(ctx context.Context, leader *Client) (err error) {
			level, err = leader.raiseLevel(ctx, raiseRequest{Forwarded: true})
			return err
		},
	})
	if done {
		h.answer(w, http.StatusOK, level)
	}
}

// An order is what only the leader can do.
type order struct {
	forwarded bool
	carryOut  func(context.Context) error
	passOn    func(ctx context.Context, leader *Client) error
}

// onLeader carries the order out when this node leads, and else passes it on. It
// reports whether it was done; if not, it has answered the request.
func (h *handler) onLeader(w http.ResponseWriter, r *http.Request, o order) bool {
	status := h.node.Status()
	leader := slices.IndexFunc(status.Members, func(m broker.MemberStatus) bool { return m.ID == status.Leader })
	switch {
	case status.Leader == status.Node:
		if err := o.carryOut(r.Context()); err != nil {
			h.refuse(w, http.StatusConflict, err.Error())
			return false
		}
	case leader < 0 && (status.State == "unborn" || status.State == "replaced"):
		h.refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%s is %s, it has no place in the group and knows no leader: ask another member, at its api address", status.Node, status.State))
		return false
	case leader < 0 || o.forwarded:
		h.refuse(w, http.StatusServiceUnavailable, "no leader is known: try again when a majority of the members runs; if a majority has lost its disks, they must be restored")
		return false
	default:
		address := status.Members[leader].API
		// It shows the leader the caller's token, which is checked there again.
		caller := h.callers.Leader
		caller.Token = bearer(r)
		if err := o.passOn(r.Context(), caller.Client(address)); err != nil {
			text := fmt.Sprintf("leader %s: %v", status.Leader, err)
			if answer := (*Error)(nil); !errors.As(err, &answer) {
				text = fmt.Sprintf("leader %s does not answer at %q: correct its api address in cluster.members of %s, or ask the leader itself: %v",
					status.Leader, address, status.Node, err)
			}
			h.refuse(w, http.StatusBadGateway, text)
			return false
		}
	}
	return true
}
