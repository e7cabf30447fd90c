package order

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/name"
)

// once returns what has the request carried out a single time, if it has a key.
func once(r *client.ScheduleRequest) (raftfsm.Once, *client.Problem) {
	if r.IdempotencyKey == "" {
		return raftfsm.Once{}, nil
	}
	if problem := CheckKey("idempotency_key", r.IdempotencyKey); problem != nil {
		return raftfsm.Once{}, problem
	}
	content := *r
	content.IdempotencyKey = ""
	content.Key, content.Value, content.Headers = plain(r.Key), plain(r.Value), slices.Clone(r.Headers)
	for i := range content.Headers {
		content.Headers[i].Value = plain(content.Headers[i].Value)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return raftfsm.Once{}, client.BadField("value", "", dataError(err))
	}
	return OnceOf("idempotency key", r.Topic+"/"+r.IdempotencyKey, text), nil
}

// plain returns data in the one form that all requests have in common which mean the same: null is what is left out,
// and the texts of JSON are escaped as json.Marshal does, which nodes from before this form had for JSON of the
// client.
func plain(d client.Data) client.Data {
	if d.JSON != nil {
		d.JSON = escapedAlike(d.JSON)
	}
	d.Null = false
	return d
}

// escapedAlike returns the value with its texts as json.Marshal writes them. Order and number of fields are kept: a
// reader may tell by them.
func escapedAlike(value []byte) []byte {
	var alike []byte
	for len(value) > 0 {
		at := bytes.IndexByte(value, '"')
		if at < 0 {
			break
		}
		end := at + 1
		for end < len(value) && value[end] != '"' {
			if value[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(value))
		quoted := value[at:end]
		var text string
		if json.Unmarshal(quoted, &text) == nil && !strings.ContainsRune(text, utf8.RuneError) { // which half of a surrogate pair becomes, too
			quoted, _ = json.Marshal(text) // a text can be written
		}
		alike = append(append(alike, value[:at]...), quoted...)
		value = value[end:]
	}
	return append(alike, value...)
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
