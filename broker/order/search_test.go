package order

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// records puts messages without ids into the schedule, with offsets from 0 on, due a second apart.
func (f *fixture) records(n int) {
	var operations []raftfsm.Operation
	for i := range n {
		due := time.Now().Add(time.Hour + time.Duration(i)*time.Second).UnixMilli()
		m := message.Message{Origin: message.Origin{Topic: "orders.delay", Partition: 2, Offset: int64(i)}, PlannedFor: due, Partition: -1, Value: []byte("a parcel")}
		operations = append(operations, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: m.Entry(due, "orders", storage.LevelFour)})
	}
	f.propose(raftfsm.Operate{Time: time.Now().UnixMilli(), Operations: operations})
}

func TestNameless_areCancelledAndChanged(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		const messages = 2500
		f.records(messages)
		id := func(offset int) string { return fmt.Sprintf("orders.delay/2/%d", offset) }
		for _, offset := range []int{0, 1500, messages - 1} {
			answer, err := f.Cancel(t.Context(), "orders.delay", id(offset), Condition{raftfsm.Exactly, uint64(offset + 1)})
			if err != nil || answer.Code != client.AnswerCancelled || answer.Seq != uint64(offset+1) || answer.ID != id(offset) {
				t.Errorf("%d: %+v, %v", offset, answer, err)
			}
			if _, err := f.Cancel(t.Context(), "orders.delay", id(offset), Condition{}); !errors.Is(err, client.ErrNotFound) || !strings.Contains(err.Error(), "is not kept") {
				t.Errorf("%d again: %v", offset, err)
			}
		}
		answer, err := f.Change(t.Context(), "orders.delay", id(7), Condition{}, client.ChangeRequest{DeliverAfter: "3h", Value: client.Text("two")})
		if err != nil || answer.Code != client.AnswerReplaced || answer.Before != 8 || answer.ID != id(7) {
			t.Fatalf("%+v, %v", answer, err)
		}
		l, problem := f.search(t.Context(), message.Origin{Topic: "orders.delay", Partition: 2, Offset: 7})
		if problem != nil || l.Seq != answer.Seq || l.Due != time.Now().UnixMilli()+3*3_600_000 {
			t.Errorf("%+v, %v", l, problem)
		}
		if _, err := f.Change(t.Context(), "orders.delay", id(7), Condition{raftfsm.Exactly, 8}, client.ChangeRequest{DeliverAfter: "4h"}); !errors.Is(err, client.ErrConflict) {
			t.Errorf("%v", err)
		}
		if _, err := f.Now(t.Context(), "orders.delay", id(7), Condition{}); err != nil {
			t.Error(err)
		}
		f.propose(raftfsm.ClaimCommand{Claim: storage.Claim{Through: time.Now().UnixMilli() + 10}})
		if _, err := f.Cancel(t.Context(), "orders.delay", id(7), Condition{}); !errors.Is(err, client.ErrTooLate) {
			t.Errorf("%v", err)
		}
		if pending := f.node.Store().State().Pending; pending != messages-3 {
			t.Errorf("%d pending", pending)
		}
	})
}

// A dead letter that waits to be written has the origin of what it was: it is found, and never dropped.
func TestNameless_leavesADeadLetterAsItIs(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		m := message.Message{Origin: message.Origin{Topic: "orders.delay", Partition: 2, Offset: 5}, Value: []byte("a parcel")}
		letter := m.AsDeadLetter(message.Problem{Code: message.CodeTargetMissing, Message: "it is missing"}, time.Now().Add(time.Hour).UnixMilli())
		f.propose(raftfsm.Operate{Time: time.Now().UnixMilli(), Operations: []raftfsm.Operation{{Verb: raftfsm.Schedule, Entry: letter.Entry(letter.PlannedFor, "carillon.dead-letter", storage.LevelFour)}}})
		for name, ask := range map[string]func(id string) (client.Answer, error){
			"cancel": func(id string) (client.Answer, error) {
				return f.Cancel(t.Context(), "orders.delay", id, Condition{})
			},
			"change": func(id string) (client.Answer, error) {
				return f.Change(t.Context(), "orders.delay", id, Condition{raftfsm.Exactly, 1}, client.ChangeRequest{DeliverTo: "orders"})
			},
			"now": func(id string) (client.Answer, error) { return f.Now(t.Context(), "orders.delay", id, Condition{}) },
		} {
			answer, err := ask("orders.delay/2/5")
			if !errors.Is(err, client.ErrTooLate) || !strings.Contains(err.Error(), "has become a dead letter, message 1, which is never dropped") {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
		}
		if pending := f.node.Store().State().Pending; pending != 1 || len(f.counts.By) > 0 {
			t.Errorf("%d pending, answered %v", pending, f.counts.By)
		}
	})
}

// A storeBetween does something once, after the first page of what is pending.
type storeBetween struct {
	Store
	do func()
}

func (s *storeBetween) List(ctx context.Context, q storage.ListQuery) (storage.Page, error) {
	page, err := s.Store.List(ctx, q)
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return page, err
}

// One caller has a message delivered earlier, another cancels it, whose search has been where it is now.
func TestNameless_isFoundThoughItMovesToWhereTheSearchHasBeen(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.records(2 * searched)
		id := fmt.Sprintf("orders.delay/2/%d", 2*searched-1)
		between := &storeBetween{Store: f.node.Store(), do: func() {
			if a, err := f.Change(t.Context(), "orders.delay", id, Condition{}, client.ChangeRequest{DeliverAfter: "1m"}); err != nil {
				t.Errorf("change: %+v, %v", a, err)
			}
		}}
		d := New(Options{Config: f.config, Store: between, Log: f.node, Count: f.counts, Begun: func() error { return nil }, Now: time.Now, Due: time.Now})
		if a, err := d.Cancel(t.Context(), "orders.delay", id, Condition{}); err != nil || a.Code != client.AnswerCancelled {
			t.Errorf("cancel: %+v, %v", a, err)
		}
		if a, err := d.Cancel(t.Context(), "orders.delay", id, Condition{}); err == nil || !errors.Is(err, client.ErrNotFound) {
			t.Errorf("cancel again: %+v, %v", a, err)
		}
	})
}
