package order

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// record puts a message into the schedule that came by a record of orders.delay.
func (f *fixture) record(id string, due int64) {
	m := message.Message{
		ID: id, Origin: message.Origin{Topic: "orders.delay", Partition: 2, Offset: 77}, PlannedFor: due, Expires: due + 5000, Partition: -1,
		Key: []byte("k"), Value: []byte("a parcel"),
		Headers: []message.Header{{Key: "deliver-at", Value: []byte("1")}, {Key: "lang", Value: []byte("de")}, {Key: "deliver-key", Value: []byte("K")}, {Key: "deliver-to", Value: []byte("parcels")}},
	}
	f.propose(raftfsm.Operate{Time: time.Now().UnixMilli(), Operations: []raftfsm.Operation{{Verb: raftfsm.Schedule, Entry: m.Entry(due, "parcels", storage.LevelThree)}}})
}

func TestChange_keepsWhatIsOmitted(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		due := time.Now().Add(time.Hour).UnixMilli()
		f.record("a", due)
		answer, err := f.Change(t.Context(), "orders.delay", "a", Condition{}, client.ChangeRequest{Value: client.Text("two parcels")})
		if err != nil || answer.Code != client.AnswerReplaced || answer.Before != 1 || answer.Seq != 2 {
			t.Fatalf("%+v, %v", answer, err)
		}
		l, m := f.waiting("a")
		if l.Due != due || l.Target != "parcels" || l.Expires != due+5000 || m.Origin.Offset != 77 || m.Origin.Partition != 2 || string(m.Value) != "two parcels" || string(m.DeliveredKey()) != "K" || m.PlannedFor != due {
			t.Errorf("%+v %+v", l, m)
		}
		if delivered := text(m.AppendDeliveredHeaders(nil, [16]byte{7}, l.Seq)); !strings.HasPrefix(delivered, "lang=de delivered-id=a") || !strings.Contains(delivered, "delivered-from=orders.delay/2/77") {
			t.Error(delivered)
		}
		_, err = f.Change(t.Context(), "orders.delay", "a", Condition{raftfsm.Exactly, 2}, client.ChangeRequest{
			DeliverAfter: "2h", DeliverTo: "orders", ExpiresAfter: "1s", Key: client.Data{Null: true}, Headers: []client.DataHeader{},
		})
		if err != nil {
			t.Fatal(err)
		}
		l, m = f.waiting("a")
		if l.Due != time.Now().UnixMilli()+7_200_000 || l.Target != "orders" || l.Expires != l.Due+1000 || m.DeliveredKey() != nil || string(m.Value) != "two parcels" {
			t.Errorf("%+v %+v", l, m)
		}
		if delivered := text(m.AppendDeliveredHeaders(nil, [16]byte{7}, l.Seq)); !strings.HasPrefix(delivered, "delivered-id=a") {
			t.Error(delivered)
		}
	})
}

func TestChange_refuses(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("a", "1h"))
		f.schedule(request("late", "1ms"))
		f.propose(raftfsm.ClaimCommand{Claim: storage.Claim{Through: time.Now().UnixMilli() + 10}})
		for name, test := range map[string]struct {
			id      string
			c       Condition
			request client.ChangeRequest
			want    error
			says    string
		}{
			"another seq":  {"a", Condition{raftfsm.Exactly, 9}, client.ChangeRequest{DeliverAfter: "2h"}, client.ErrConflict, "message 1 waits"},
			"claimed":      {"late", Condition{}, client.ChangeRequest{DeliverAfter: "2h"}, client.ErrTooLate, "on its way"},
			"unknown":      {"b", Condition{}, client.ChangeRequest{DeliverAfter: "2h"}, client.ErrNotFound, `"b"`},
			"seconds":      {"a", Condition{}, client.ChangeRequest{DeliverAt: "1900000000"}, client.ErrBadRequest, "looks like seconds"},
			"denied":       {"a", Condition{}, client.ChangeRequest{DeliverTo: "secrets"}, client.ErrBadRequest, "targets.deny"},
			"instructions": {"a", Condition{}, client.ChangeRequest{Headers: []client.DataHeader{{Key: "deliver-at"}}}, client.ErrBadRequest, "is an instruction"},
		} {
			if _, err := f.Change(t.Context(), "orders.delay", test.id, test.c, test.request); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l, _ := f.waiting("a"); l.Seq != 1 {
			t.Errorf("seq %d", l.Seq)
		}
	})
}

// A message that was replaced after it was read is read again, unless the caller names the one that is meant.
func TestChange_beginsAnewWhenTheMessageIsAnother(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("a", "1h"))
		late := &lateStore{Store: f.node.Store(), replace: func() { f.schedule(request("a", "3h")) }}
		f.Desk.store = late
		answer, err := f.Change(t.Context(), "orders.delay", "a", Condition{}, client.ChangeRequest{Value: client.Text("two parcels")})
		if err != nil || answer.Before != 2 || late.reads != 2 {
			t.Errorf("%+v, %v after %d reads", answer, err, late.reads)
		}
		if l, _ := f.waiting("a"); l.Due != time.Now().UnixMilli()+3*3_600_000 {
			t.Errorf("%+v", l)
		}
		late.reads = 0
		if _, err := f.Change(t.Context(), "orders.delay", "a", Condition{raftfsm.Exactly, answer.Seq}, client.ChangeRequest{DeliverAfter: "1m"}); !errors.Is(err, client.ErrConflict) || problem(err).Seq == answer.Seq {
			t.Errorf("%v", err)
		}
	})
}

// Whoever is overtaken again and again is not told of a condition that nobody has set.
func TestChange_goesOnUntilThereIsNoMoreTime(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("a", "1h"))
		late := &lateStore{Store: f.node.Store(), times: 20, replace: func() { f.schedule(request("a", "3h")) }}
		f.Desk.store = late
		answer, err := f.Change(t.Context(), "orders.delay", "a", Condition{}, client.ChangeRequest{Value: client.Text("two parcels")})
		if err != nil || answer.Before != 21 || late.reads != 21 {
			t.Errorf("%+v, %v after %d reads", answer, err, late.reads)
		}
		ctx, cancel := context.WithCancel(t.Context())
		late.reads, late.replace = 0, func() {
			if f.schedule(request("a", "3h")); late.reads == 7 {
				cancel()
			}
		}
		if _, err := f.Change(ctx, "orders.delay", "a", Condition{}, client.ChangeRequest{DeliverAfter: "2h"}); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("%v", err)
		}
	})
}

func TestWrites_checkTheirTopic(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("a\x00b", "1h"))
		const topic = "orders.delay\x00a" // with the id b it has the name of that message
		_, cancelled := f.Cancel(t.Context(), topic, "b", Condition{})
		_, changed := f.Change(t.Context(), topic, "b", Condition{}, client.ChangeRequest{DeliverAfter: "2h"})
		_, now := f.Now(t.Context(), topic, "b", Condition{})
		for what, err := range map[string]error{"cancel": cancelled, "change": changed, "now": now} {
			if !errors.Is(err, client.ErrBadRequest) || problem(err).Field != "topic" {
				t.Errorf("%s: %v", what, err)
			}
		}
		if l, _ := f.waiting("a\x00b"); l.Seq != 1 {
			t.Errorf("seq %d waits", l.Seq)
		}
	})
}

func TestChange_ofTheTargetLeavesItsPartition(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		r := request("a", "1h")
		r.DeliverTo, r.Partition = "parcels", new(int32(40))
		f.schedule(r)
		for _, test := range []struct {
			request client.ChangeRequest
			want    int32
		}{
			{client.ChangeRequest{DeliverAfter: "2h"}, 40},
			{client.ChangeRequest{DeliverTo: "parcels"}, 40},
			{client.ChangeRequest{DeliverTo: "letters"}, -1},
			{client.ChangeRequest{DeliverTo: "parcels", Partition: new(int32(3))}, 3},
		} {
			if _, err := f.Change(t.Context(), "orders.delay", "a", Condition{}, test.request); err != nil {
				t.Fatal(err)
			}
			if _, m := f.waiting("a"); m.Partition != test.want {
				t.Errorf("%+v: partition %d, want %d", test.request, m.Partition, test.want)
			}
		}
	})
}

// A lateStore has the message replaced right after it was read, the first time or so many times.
type lateStore struct {
	Store
	reads   int
	times   int
	replace func()
}

func (s *lateStore) Get(ctx context.Context, topic, id string) (storage.Known, error) {
	known, err := s.Store.Get(ctx, topic, id)
	if s.reads++; s.reads <= max(s.times, 1) {
		s.replace()
	}
	return known, err
}

func TestNow_isDueAtOnce(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("a", "1h"))
		f.schedule(request("due", "1ms"))
		l, _ := f.waiting("due")
		later := time.Now().Add(time.Second)
		f.Desk.due = func() time.Time { return later } // another time than it is now: a clock was set
		for id, want := range map[string]int64{"a": later.UnixMilli(), "due": l.Due} {
			if _, err := f.Now(t.Context(), "orders.delay", id, Condition{}); err != nil {
				t.Fatal(err)
			}
			if l, _ := f.waiting(id); l.Due != want {
				t.Errorf("%s is due %d, want %d", id, l.Due, want)
			}
		}
	})
}
