package order

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A Letter is a dead letter as it lies in its topic.
type Letter struct {
	Place  raftfsm.Replay // where; Again is the request's
	Origin message.Origin // of what could not be scheduled or delivered

	Key, Value []byte
	Headers    []message.Header
}

// ours are headers that Carillon added to the record, beside those of the dead letter.
var ours = []string{client.HeaderDeliveredID, client.HeaderDeliveredFor, client.HeaderDeliveredFrom, client.HeaderDeliveredSeq}

// Replay schedules a dead letter anew: its key, value and own headers, at once and to its target unless
// the request says otherwise, under its id if it had one. It is marked in the log entry that schedules it,
// so it is not replayed a second time unless the request says again. A message that waits under its id
// does not give way. The scope sees what is scheduled as a request of its own.
func (d *Desk) Replay(ctx context.Context, may Scope, l Letter, r client.ReplayRequest) (client.Answer, error) {
	if problem := d.mayAccept(storage.LevelFour); problem != nil {
		return client.Answer{}, problem
	}
	op, problem := d.Replayed(&l, may, r)
	if problem != nil {
		return client.Answer{}, problem
	}
	answer, err := d.one(ctx, op)
	if refused, _ := err.(*client.Problem); refused != nil && refused.Code == client.CodeConflict {
		refused.Detail = fmt.Sprintf("message %d waits under the id %q of %s, which the dead letter would replace: cancel it first", refused.Seq, op.Entry.ID, op.Entry.Topic)
	}
	return answer, err
}

// Replayed returns the operation that replays a dead letter, or why it cannot be; see Replay.
func (d *Desk) Replayed(l *Letter, may Scope, r client.ReplayRequest) (op raftfsm.Operation, problem *client.Problem) {
	route, problem := d.routeOf(l.Origin.Topic)
	if problem != nil {
		return op, problem
	}
	now := d.now()
	if r.DeliverAt == "" && r.DeliverAfter == "" {
		r.DeliverAt = rfc3339(d.atOnce())
	}
	said := client.ScheduleRequest{Topic: l.Origin.Topic, DeliverAt: r.DeliverAt, DeliverAfter: r.DeliverAfter, DeliverTo: r.DeliverTo}
	kept, problem := l.headers(r)
	if problem != nil {
		return op, problem
	}
	if route.Partitioner == message.SamePartition && !l.Origin.NoRecord() && r.DeliverTo == "" && !has(kept, client.HeaderPartition) {
		said.Partition = &l.Origin.Partition
	}
	a, problem := arrival(append(said.Instructions(), kept...), client.Bytes(l.Key), client.Bytes(l.Value), now)
	if problem != nil {
		return op, problem
	}
	if a.Instruction.ID == "" {
		a.Instruction.ID = newID(said.Topic, "", raftfsm.Once{})
	}
	op, problem = d.judged(route, message.Origin{Topic: said.Topic, Partition: message.NoPartition}, a, now, &said)
	if problem == nil && may != nil {
		problem = may(&said, op.Entry.Target)
	}
	place := l.Place
	place.Again = r.Again
	op.If, op.Replay = raftfsm.Absent, &place
	return op, problem
}

// headers returns those of the record as it was, without what the request says anew. Of what it asked
// for the times are gone, and when it expired: they are why it lies there, or long past.
func (l *Letter) headers(r client.ReplayRequest) (kept []client.Header, problem *client.Problem) {
	dropped := []string{client.HeaderAt, client.HeaderAfter, client.HeaderExpiresAt, client.HeaderExpiresAfter, client.HeaderIf}
	if r.DeliverTo != "" {
		dropped = append(dropped, client.HeaderTo, client.HeaderPartition)
	}
	for _, h := range l.Headers {
		switch {
		case h.Key == client.HeaderErrorValueDropped && l.Value == nil: // a producer may have sent such a header, of an earlier one
			return nil, l.lost("has no value, which was too large for it: produce the record again, from " + l.Origin.String())
		case strings.EqualFold(h.Key, client.HeaderCancel):
			return nil, l.lost("is no message, it asked to cancel one: replay another")
		case strings.HasPrefix(h.Key, errorPrefix) || slices.Contains(ours, h.Key):
		case slices.ContainsFunc(dropped, func(name string) bool { return strings.EqualFold(name, h.Key) }):
		default:
			kept = append(kept, client.Header(h))
		}
	}
	return kept, nil
}

// lost says why the dead letter cannot be made a message of.
func (l *Letter) lost(why string) *client.Problem {
	return client.BadField("offset", strconv.FormatInt(l.Place.Offset, 10), "names a dead letter that "+why)
}

// errorPrefix begins the names of what a dead letter is told by.
const errorPrefix = "__carillon.errors."

func has(headers []client.Header, name string) bool {
	return slices.ContainsFunc(headers, func(h client.Header) bool { return h.Key == name })
}
