package order

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage/outcomes"
)

func TestSchedule_takesEffectOnceForAKey(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"", "order-7"} {
			r := request(id, "1h")
			r.IdempotencyKey = "key of " + id
			first := f.schedule(r)
			again := f.schedule(r)
			if again.Code != client.AnswerScheduled || !again.Again || first.Again || again.Seq != first.Seq || again.ID != first.ID {
				t.Errorf("first %+v, again %+v", first, again)
			}
			r.Value = client.Text("another parcel")
			if p := f.Schedule(t.Context(), nil, []client.ScheduleRequest{r})[0].Problem; !errors.Is(p, client.ErrKeyReused) {
				t.Errorf("%+v", p)
			}
		}
		r := request("x", "1h")
		r.IdempotencyKey = strings.Repeat("k", 257)
		if p := f.Schedule(t.Context(), nil, []client.ScheduleRequest{r})[0].Problem; p == nil || p.Field != "idempotency_key" {
			t.Errorf("%+v", p)
		}
		if pending := f.node.Store().State().Pending; pending != 2 {
			t.Errorf("%d pending", pending)
		}
	})
}

// A repetition gets the first answer, whatever the request would come to now. Another request with the key, and
// one of somebody who may not, does not.
func TestSchedule_tellsARepetitionTheFirstAnswer(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"", "order-7"} {
			r := request(id, "1h")
			r.ExpiresAt = time.Now().Add(90 * time.Minute).UTC().Format(time.RFC3339)
			r.IdempotencyKey = "key of " + id
			first := f.schedule(r)
			f.pass(time.Hour)
			again := f.schedule(r)
			first.Again, first.Before = true, 0
			if diff := cmp.Diff(first, again); diff != "" {
				t.Error(diff)
			}
			other := r
			other.Value = client.Text("another parcel")
			nobody := func(*client.ScheduleRequest, string) *client.Problem {
				return &client.Problem{Code: client.CodeForbidden}
			}
			for _, items := range [][]client.BatchItem{f.Schedule(t.Context(), nil, []client.ScheduleRequest{other}), f.Schedule(t.Context(), nobody, []client.ScheduleRequest{r})} {
				if p := items[0].Problem; p == nil || p.Field != "expires_at" {
					t.Errorf("%+v", items[0])
				}
			}
		}
	})
}

// A deafLog does not learn what is committed.
type deafLog struct {
	*node.Node
	err error
}

func (l deafLog) Barrier(context.Context) error { return l.err }

// Who cannot tell whether the request is a repetition does not refuse it for good.
func TestSchedule_refusesNoRepetitionThatItDoesNotKnowOf(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		r := request("a", "1h")
		r.ExpiresAfter, r.IdempotencyKey = "0s", "key"
		for err, want := range map[error]client.Code{raftfsm.ErrNotLeader: client.CodeNotLeader, raftfsm.ErrInDoubt: client.CodeUnavailable, nil: client.CodeBadRequest} {
			for _, item := range f.over(deafLog{f.node, err}).Schedule(t.Context(), nil, []client.ScheduleRequest{r, r}) {
				if item.Problem == nil || item.Problem.Code != want {
					t.Errorf("%v: %+v", err, item)
				}
			}
		}
	})
}

// Keys are forgotten after outcomes.keep, and a message may wait for longer.
func TestSchedule_replacesNothingElseOnceTheKeyIsForgotten(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		r := request("", "9h")
		r.IdempotencyKey = "key"
		first := f.schedule(r)
		f.pass(time.Hour)
		f.propose(raftfsm.KeepOutcomes{Time: time.Now().UnixMilli(), Keep: outcomes.Keep{For: 1000, Count: 1}})
		f.schedule(request("", "9h")) // its time has the key forgotten
		r.Value = client.Text("another parcel")
		other := f.schedule(r)
		if other.Code != client.AnswerScheduled || other.ID == first.ID {
			t.Errorf("first %+v, another request %+v", first, other)
		}
		if pending := f.node.Store().State().Pending; pending != 3 {
			t.Errorf("%d pending", pending)
		}
	})
}
