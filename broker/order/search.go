package order

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A message whose producer chose no id is named by its record, and no index leads there: it is searched
// among what is pending, and the log is asked about the message of that seq. Should it have been changed
// meanwhile, that one is dead, and the one in its place has the same record: it is searched again.

// searched is how many messages are looked at together.
const searched = 1024

// nameless returns the record that the id names, if it is no chosen one.
func nameless(topic, id string) (message.Origin, bool) {
	origin, ok := query.ParseOrigin(id)
	return origin, ok && origin.Topic == topic
}

// search returns the message of the record. One search runs at a time.
func (d *Desk) search(ctx context.Context, origin message.Origin) (*storage.Listed, *client.Problem) {
	if problem := d.levelOf(storage.LevelFour); problem != nil {
		return nil, problem
	}
	slow := func(err error) *client.Problem {
		return &client.Problem{Code: client.CodeUnavailable, Detail: fmt.Sprintf("message %s was not found in time, nothing was done: what has no id of its own is searched among all that is pending: %v", origin, err)}
	}
	if err := d.searches.Acquire(ctx, 1); err != nil {
		return nil, slow(err)
	}
	defer d.searches.Release(1)
	if err := d.log.Barrier(ctx); err != nil { // so that nothing is missing here that was acknowledged
		if errors.Is(err, raftfsm.ErrNotLeader) {
			return nil, problemOf(err)
		}
		return nil, slow(err)
	}
	w := query.NewSearch(d.store, origin)
	var begun uint64 // Earlier, as it was where the walk began
	for from, first := w.First(), true; ; {
		s, err := w.Stretch(ctx, from, searched)
		if ctx.Err() != nil {
			return nil, slow(context.Cause(ctx))
		}
		if err != nil {
			return nil, &client.Problem{Code: client.CodeInternal, Detail: err.Error()}
		}
		if len(s.Met) > 0 {
			return found(&s.Met[0])
		}
		if first {
			begun = s.Earlier
		}
		switch {
		case !s.Done:
			from, first = s.Next, false
		case s.Earlier == begun:
			return nil, unknown(origin)
		default: // others have changed messages meanwhile: this one may be where the walk had been
			from, first = w.First(), true
		}
	}
}

// found returns what was met, if it can still be cancelled or changed: a dead letter is never dropped, also
// while it waits to be written.
func found(met *query.Met) (*storage.Listed, *client.Problem) {
	if met.Message.DeadLetter {
		return nil, &client.Problem{Code: client.CodeTooLate, Seq: met.Seq, Detail: fmt.Sprintf("too late: %s could not be scheduled or delivered and has become a dead letter, message %d, which is never dropped", met.Message.Origin, met.Seq)}
	}
	return &met.Listed, nil
}

func unknown(origin message.Origin) *client.Problem {
	return &client.Problem{Code: client.CodeNotFound, Detail: fmt.Sprintf("no message %s is pending: what became of those without an id of their own is not kept", origin)}
}

// ofRecord asks the log about the message of the record, as long as it is another one by then, and until ctx ends.
func (d *Desk) ofRecord(ctx context.Context, origin message.Origin, operation func(l *storage.Listed) (raftfsm.Operation, *client.Problem)) (client.Answer, error) {
	for {
		l, problem := d.search(ctx, origin)
		if problem != nil {
			return client.Answer{}, problem
		}
		op, problem := operation(l)
		if problem != nil {
			return client.Answer{}, problem
		}
		op.Of = &storage.Found{Ref: l.Ref, Target: l.Target, Topic: l.Topic, Expires: l.Expires}
		answer, err := d.one(ctx, op)
		switch {
		case err == nil:
			answer.Topic, answer.ID = origin.Topic, origin.String()
			return answer, nil
		case !errors.Is(err, client.ErrNotFound):
			return answer, err
		case ctx.Err() != nil:
			return client.Answer{}, overtaken(ctx, origin.String())
		}
	}
}

// cancelOfRecord is Cancel of a message without an id.
func (d *Desk) cancelOfRecord(ctx context.Context, origin message.Origin, c Condition) (client.Answer, error) {
	return d.ofRecord(ctx, origin, func(*storage.Listed) (raftfsm.Operation, *client.Problem) {
		return raftfsm.Operation{Verb: raftfsm.Cancel, If: c.If, Seq: c.Seq, Entry: storage.Entry{Topic: origin.Topic}}, nil
	})
}

// changeOfRecord is Change of a message without an id.
func (d *Desk) changeOfRecord(ctx context.Context, origin message.Origin, c Condition, request asking) (client.Answer, error) {
	return d.ofRecord(ctx, origin, func(l *storage.Listed) (raftfsm.Operation, *client.Problem) {
		op, problem := d.changed(l, request(l.Ref), d.now())
		op.Verb, op.If, op.Seq = raftfsm.Change, c.If, c.Seq
		return op, problem
	})
}
