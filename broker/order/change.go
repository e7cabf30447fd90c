package order

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// noSeq is the seq of no message: they are counted from 1.
const noSeq = 0

// Change puts a message into the place of the one that waits under the id: the same but for what the
// request names, with a seq of its own. What it comes from stays.
func (d *Desk) Change(ctx context.Context, topic, id string, c Condition, r client.ChangeRequest) (client.Answer, error) {
	if problem := r.Check(); problem != nil {
		return client.Answer{}, problem
	}
	return d.change(ctx, topic, id, c, func(storage.Ref) client.ChangeRequest { return r })
}

// Now makes the message that waits under the id due at once. What is due already keeps its place in the
// order of delivery.
func (d *Desk) Now(ctx context.Context, topic, id string, c Condition) (client.Answer, error) {
	return d.change(ctx, topic, id, c, func(waits storage.Ref) client.ChangeRequest {
		return client.ChangeRequest{DeliverAt: rfc3339(min(waits.Due, d.atOnce()))}
	})
}

// asking returns what is asked for of the message that waits.
type asking func(waits storage.Ref) client.ChangeRequest

// change reads the message that waits as this node has it, and proposes what takes its place on the
// condition that it waits still. The log decides, so nothing is asked of it before: should another one
// wait by then, it is read again, until ctx ends; should none be known here, the log is asked in vain for a message of no
// seq, and says in its answer what became of it.
func (d *Desk) change(ctx context.Context, topic, id string, c Condition, request asking) (client.Answer, error) {
	if problem := d.mayAccept(storage.LevelThree); problem != nil {
		return client.Answer{}, problem
	}
	if err := config.CheckTopicName(topic); err != nil {
		return client.Answer{}, badTopic(topic, err)
	}
	if origin, ok := nameless(topic, id); ok {
		return d.changeOfRecord(ctx, origin, c, request)
	}
	for {
		known, err := d.store.Get(ctx, topic, id)
		if ctx.Err() != nil {
			return client.Answer{}, overtaken(ctx, id)
		}
		if err != nil {
			return client.Answer{}, &client.Problem{Code: client.CodeInternal, Detail: err.Error()}
		}
		op := raftfsm.Operation{Verb: raftfsm.Change, If: raftfsm.Exactly, Seq: noSeq, Entry: storage.Entry{Topic: topic, ID: id}}
		if m := known.Message; m != nil && waits(m.Standing) && (c.If != raftfsm.Exactly || c.Seq == m.Seq) {
			changed, problem := d.changed(m, request(m.Ref), d.now())
			if problem != nil {
				return client.Answer{}, problem
			}
			op.Seq, op.Entry = m.Seq, changed.Entry
		}
		answer, err := d.one(ctx, op)
		refused, _ := err.(*client.Problem)
		again := refused != nil && refused.Code == client.CodeConflict && (c.If != raftfsm.Exactly || refused.Seq == c.Seq)
		if !again {
			return answer, err
		}
	}
}

// overtaken says that there was no more time: if not at once, then since whenever the message was read, somebody
// else was faster.
func overtaken(ctx context.Context, id string) *client.Problem {
	return &client.Problem{Code: client.CodeUnavailable, Detail: fmt.Sprintf("nothing was done, there was no time for it: others may change the message that waits under %q again and again: ask again: %v", id, context.Cause(ctx))}
}

// waits reports whether a message that stands so can be changed.
func waits(s storage.Standing) bool {
	return s == storage.Waiting || s == storage.Parked || s == storage.Paused
}

// changed returns the operation that puts a message into the place of the one listed.
func (d *Desk) changed(l *storage.Listed, r client.ChangeRequest, now int64) (op raftfsm.Operation, problem *client.Problem) {
	entry := l.Entry()
	old, err := message.FromEntry(&entry)
	if err != nil {
		return op, &client.Problem{Code: client.CodeInternal, Seq: l.Seq, Detail: fmt.Sprintf("message %d is stored, and cannot be read: %v", l.Seq, err)}
	}
	route := d.config.RouteOfPending(old.Origin.Topic)
	full := client.ScheduleRequest{ID: old.ID, DeliverAt: r.DeliverAt, DeliverAfter: r.DeliverAfter, DeliverTo: r.DeliverTo, Partition: r.Partition, ExpiresAt: r.ExpiresAt, ExpiresAfter: r.ExpiresAfter}
	if r.DeliverAt == "" && r.DeliverAfter == "" {
		full.DeliverAt = rfc3339(max(old.PlannedFor, 0))
	}
	if r.ExpiresAt == "" && r.ExpiresAfter == "" && old.Expires != 0 {
		full.ExpiresAt = rfc3339(old.Expires)
	}
	if r.DeliverTo == "" && l.Target != route.Target(old.Origin.Topic) {
		full.DeliverTo = l.Target
	}
	// The number of a partition says something of the target that it was chosen for.
	if r.Partition == nil && old.Partition >= 0 && (r.DeliverTo == "" || r.DeliverTo == l.Target) {
		full.Partition = &old.Partition
	}
	serverMade := strings.HasPrefix(old.ID, message.OwnPrefix)
	if serverMade {
		full.ID = ""
	}
	headers := full.Instructions()
	own, problem := ownHeaders(&old, r)
	if problem != nil {
		return op, problem
	}
	a, problem := arrival(append(headers, own...), r.Key, r.Value, now)
	if problem != nil {
		return op, problem
	}
	if serverMade {
		a.Instruction.ID = old.ID
	}
	if r.Key.IsZero() {
		a.Key = old.Key
	}
	if r.Value.IsZero() {
		a.Value = old.Value
	}
	return d.judged(route, old.Origin, a, now, &full)
}

// Changed returns what would take the place of a message that waits, as Change has it, and proposes
// nothing.
func (d *Desk) Changed(l *storage.Listed, r client.ChangeRequest, now int64) (storage.Entry, *client.Problem) {
	op, problem := d.changed(l, r, now)
	return op.Entry, problem
}

// Fixed returns a change that is asked for now with its time as one of delivery, if it names any. The problem is
// why any message of the delay topic would be refused so, whichever it is: by the time or the target that the
// change names. Topic "" is any.
func (d *Desk) Fixed(topic string, r client.ChangeRequest, now int64) (client.ChangeRequest, *client.Problem) {
	said := client.ScheduleRequest{DeliverAt: r.DeliverAt, DeliverAfter: r.DeliverAfter, DeliverTo: r.DeliverTo}
	hasTime := r.DeliverAt != "" || r.DeliverAfter != ""
	if !hasTime {
		said.DeliverAfter = "0s"
	}
	in, err := client.Parse(said.Instructions(), now)
	if wrong, ok := errors.AsType[*client.HeaderError](err); ok {
		return r, wrong.OfField()
	}
	route := d.config.RouteOfPending(topic)
	if topic == "" {
		route = config.NewRoute("")
		route.MaxDelay = max(route.MaxDelay, d.config.MaxDelay())
	}
	if r.DeliverTo != "" {
		if _, problem := d.config.Destination(route, topic, r.DeliverTo); problem != nil {
			return r, refused(problem, r.DeliverTo, &said)
		}
	}
	if !hasTime {
		return r, nil
	}
	if problem := route.RefuseDue(in.DueAt, now); problem != nil {
		return r, refused(problem, r.DeliverTo, &said)
	}
	r.DeliverAt, r.DeliverAfter = rfc3339(in.DueAt), ""
	return r, nil
}

// ownHeaders returns the headers of the changed message that are no instructions, and those that give
// its key, unless the request does.
func ownHeaders(old *message.Message, r client.ChangeRequest) (headers []client.Header, problem *client.Problem) {
	for _, h := range old.Headers {
		givesKey := h.Key == client.HeaderKey || h.Key == client.HeaderKeyBase64
		isOwn := !strings.HasPrefix(h.Key, client.InstructionPrefix)
		if isOwn && r.Headers == nil || givesKey && r.Key.IsZero() {
			headers = append(headers, client.Header(h))
		}
	}
	given, problem := headersOf(r.Headers)
	return append(headers, given...), problem
}

// rfc3339 is a time as deliver-at takes it, also one that epoch milliseconds may not say.
func rfc3339(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339Nano) }
