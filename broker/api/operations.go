package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
)

const operationsPath = "/v1/operations"

type startInput struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"1 to 256 bytes: the same request with the same key starts one operation, another one is refused; it is known as long as outcomes are"`
	Body           client.OperationRequest
}

type operationOutput struct{ Body client.Operation }

type operationsOutput struct{ Body client.Operations }

// An OperationInput names an operation.
type OperationInput struct {
	ID string `path:"operation" doc:"the number that it was started with"`
}

// startOperation answers POST /v1/operations.
func (h *handler) startOperation(ctx context.Context, in *startInput) (*operationOutput, error) {
	r, who := &in.Body, visitOf(ctx).who
	noteOperation(ctx, r)
	if !who.Allows(access.Operate, objectOf(&r.Filter)) {
		return nil, refuses(client.Problem{Code: client.CodeForbidden, Field: "filter",
			Detail: lacking(who, need{permission: access.Operate}) + ": name a topic and a target in the filter that it is for"})
	}
	if c := r.Change; c != nil && c.DeliverTo != "" && !who.Allows(access.Operate, access.Object{Topic: r.Filter.Topic, Target: c.DeliverTo}) {
		return nil, refuses(client.Problem{Code: client.CodeForbidden, Field: "change.deliver_to", Value: c.DeliverTo, Detail: lacking(who, need{permission: access.Operate})})
	}
	for field, at := range map[string]int64{"filter.from": r.Filter.From, "filter.to": r.Filter.To} {
		if err := inMillis(field, at); err != nil {
			return nil, err
		}
	}
	o, err := h.node.Operations().Start(ctx, *r, who.Name, in.IdempotencyKey)
	if err != nil {
		return nil, problemOf(err)
	}
	note(ctx, "operation", o.ID)
	return &operationOutput{o}, nil
}

// noteOperation notes what is to be done to what.
func noteOperation(ctx context.Context, r *client.OperationRequest) {
	millis := func(at int64) string {
		if at == 0 {
			return ""
		}
		return strconv.FormatInt(at, 10)
	}
	f := &r.Filter
	note(ctx, "verb", r.Verb, "topic", f.Topic, "target", f.Target, "reason", r.Reason, "dry_run", r.DryRun)
	noteGiven(ctx, "prefix", f.Prefix, "from", millis(f.From), "to", millis(f.To), "states", strings.Join(f.States, ","), "letter_code", f.Code)
	if r.All {
		note(ctx, "all", true)
	}
	if r.Again {
		note(ctx, "again", true)
	}
	if c := r.Change; c != nil {
		noteGiven(ctx, "deliver_at", c.DeliverAt, "deliver_after", c.DeliverAfter, "shift", c.Shift, "deliver_to", c.DeliverTo)
	}
}

// objectOf is what an operation on all that the filter means is done to.
func objectOf(f *client.Filter) access.Object { return access.Object{Topic: f.Topic, Target: f.Target} }

// operations answers GET /v1/operations, with those that the caller may see.
func (h *handler) operations(ctx context.Context, in *StaleInput) (*operationsOutput, error) {
	all := h.node.Operations().Local()
	if !in.Stale {
		var err error
		if all, err = h.node.Operations().List(ctx); err != nil {
			return nil, problemOf(err)
		}
	}
	who := visitOf(ctx).who
	all.Operations = slices.DeleteFunc(all.Operations, func(o client.Operation) bool { return !who.Allows(access.View, objectOf(&o.Filter)) })
	return &operationsOutput{all}, nil
}

type operationInput struct {
	OperationInput
	StaleInput
}

// operation answers GET /v1/operations/{operation}.
func (h *handler) operation(ctx context.Context, in *operationInput) (*operationOutput, error) {
	get := h.node.Operations().Get
	if in.Stale {
		get = h.localOperation
	}
	o, err := h.operationFor(ctx, get, in.ID, access.View)
	if err != nil {
		return nil, err
	}
	return &operationOutput{o}, nil
}

// localOperation returns an operation as far as this node knows it.
func (h *handler) localOperation(_ context.Context, id string) (client.Operation, error) {
	for _, o := range h.node.Operations().Local().Operations {
		if o.ID == id {
			return o, nil
		}
	}
	return client.Operation{}, &client.Problem{Code: client.CodeNotFound, Detail: fmt.Sprintf("this node knows no operation %q, and may be behind: ask without stale", id)}
}

// stopOperation answers POST /v1/operations/{operation}/stop.
func (h *handler) stopOperation(ctx context.Context, in *stopInput) (*operationOutput, error) {
	note(ctx, "operation", in.ID, "reason", in.Reason)
	if _, err := h.operationFor(ctx, h.node.Operations().Get, in.ID, access.Operate); err != nil {
		return nil, err
	}
	o, err := h.node.Operations().Stop(ctx, in.ID, visitOf(ctx).who.Name, in.Reason)
	if err != nil {
		return nil, problemOf(err)
	}
	return &operationOutput{o}, nil
}

type stopInput struct {
	OperationInput
	Reason string `query:"reason" doc:"why, for those who find it stopped"`
}

// operationFor gets the operation if the caller has the permission for what it means.
func (h *handler) operationFor(ctx context.Context, get func(context.Context, string) (client.Operation, error), id string, p access.Permission) (client.Operation, error) {
	o, err := get(ctx, id)
	if err != nil {
		return o, problemOf(err)
	}
	if who := visitOf(ctx).who; !who.Allows(p, objectOf(&o.Filter)) {
		return o, refuses(client.Problem{Code: client.CodeForbidden, Detail: lacking(who, need{permission: p})})
	}
	return o, nil
}
