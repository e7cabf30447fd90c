package order

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/name"
)

// once returns what has the request carried out a single time, if it has a key. The content is the request as it was
// written, blanks of its JSON aside: nodes of all versions must come to the same, since a repetition may reach another one.
func once(r *client.ScheduleRequest) (raftfsm.Once, *client.Problem) {
	if r.IdempotencyKey == "" {
		return raftfsm.Once{}, nil
	}
	if problem := CheckKey("idempotency_key", r.IdempotencyKey); problem != nil {
		return raftfsm.Once{}, problem
	}
	content := *r
	content.IdempotencyKey = ""
	text, err := json.Marshal(content)
	if err != nil {
		return raftfsm.Once{}, client.BadField("value", "", dataError(err))
	}
	return OnceOf("idempotency key", r.Topic+"/"+r.IdempotencyKey, text), nil
}

// CheckKey returns what is wrong with an idempotency key that a field of the request gives, or nil.
func CheckKey(field, key string) *client.Problem {
	if len(key) > client.MostKey {
		return client.BadField(field, key, fmt.Sprintf("has %d bytes: use %d at most", len(key), client.MostKey))
	}
	return nil
}

// OnceOf returns what has a request of this content carried out a single time for the key. The scope, which no
// topic is called, keeps the keys of requests of one kind apart from those of others.
func OnceOf(scope, key string, content []byte) raftfsm.Once {
	sum := sha256.Sum256(content)
	return raftfsm.Once{Key: name.Of(scope, key), Content: binary.BigEndian.Uint64(sum[:])}
}

// tellRepetitions puts the first answer in the place of the problem of a repetition that is refused now. What the request
// counts from the present may have passed since, and the configuration may be another: it is no less the request
// that was carried out.
func (d *Desk) tellRepetitions(ctx context.Context, may Scope, requests []client.ScheduleRequest, items []client.BatchItem) {
	looked, unknown := false, (*client.Problem)(nil)
	for i := range requests {
		r, refused := &requests[i], items[i].Problem
		if refused == nil || refused.Code == client.CodeForbidden || r.IdempotencyKey == "" {
			continue
		}
		keyed, problem := once(r)
		if problem != nil || may != nil && may(r, d.targetOf(r)) != nil {
			continue
		}
		if !looked {
			looked, unknown = true, d.catchUp(ctx)
		}
		if unknown != nil {
			items[i].Problem = unknown
			continue
		}
		kept, known := d.store.Answered(keyed.Key)
		if !known || kept.By != keyed.Content {
			continue
		}
		id := cmp.Or(r.ID, newID(r.Topic, r.IdempotencyKey, keyed))
		items[i].Answer, items[i].Problem = tell(r.Topic, id, raftfsm.Answer{Code: raftfsm.Code(kept.Partition), Seq: kept.Seq, Again: true})
	}
}

// catchUp returns once all that was acknowledged to anybody is applied here, or why that is not known.
func (d *Desk) catchUp(ctx context.Context) *client.Problem {
	err := d.log.Barrier(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raftfsm.ErrNotLeader):
		return problemOf(err)
	}
	return &client.Problem{Code: client.CodeUnavailable, Detail: "nothing was done, and whether the idempotency key came before is not known: ask again: " + err.Error()}
}

// targetOf returns where a message would go, be it allowed or not, "" if that is not known.
func (d *Desk) targetOf(r *client.ScheduleRequest) string {
	if route, ok := d.config.Route(r.Topic); ok {
		return cmp.Or(r.DeliverTo, route.Target(r.Topic))
	}
	return r.DeliverTo
}
