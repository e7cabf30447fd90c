package bulk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/outcomes"
)

func TestStart_countsOnlyOnADryRun(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 50)
		for _, test := range []struct {
			filter client.Filter
			want   uint64
		}{{client.Filter{Topic: "a.delay"}, 50}, {client.Filter{Prefix: "a-"}, 25}, {client.Filter{Prefix: "a.delay/0/1"}, 6}, {client.Filter{To: f.begun.Add(time.Hour + 10*time.Second).UnixMilli()}, 10}} {
			o := f.start(client.OperationRequest{Verb: client.OperationCancel, Filter: test.filter, DryRun: true})
			if o.ID != "" || o.Matched != test.want || o.Within != 0 || !o.DryRun || o.State != client.OperationFinished {
				t.Errorf("%+v: %+v, want %d", test.filter, o, test.want)
			}
		}
		if all, err := f.List(t.Context()); err != nil || len(all.Operations) != 0 || len(f.pending()) != 50 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestStart_onceForAKeyAndEightAtATime(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 50)
		r := client.OperationRequest{Verb: client.OperationCancel, All: true, Reason: "r"}
		for range 2 {
			if o, err := f.Start(t.Context(), r, "ann", "key"); err != nil || o.ID != "1" {
				t.Errorf("%+v, %v", o, err)
			}
		}
		other := r
		other.Reason = "another"
		if _, err := f.Start(t.Context(), other, "ann", "key"); !errors.Is(err, client.ErrKeyReused) {
			t.Errorf("another content: %v", err)
		}
		for range bulk.MostRunning - 1 {
			f.start(r)
		}
		if _, err := f.Start(t.Context(), r, "ann", "other"); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("a ninth: %v", err)
		}
		defer f.lead()()
		var done, tooLate, notFound uint64
		for id := range bulk.MostRunning {
			o := f.ended(fmt.Sprint(id + 1))
			done, tooLate, notFound = done+o.Done, tooLate+o.TooLate, notFound+o.NotFound
		}
		if done != 50 || tooLate+notFound > 7*50 || len(f.pending()) != 0 {
			t.Errorf("%d done, %d too late, %d not found of 50 by eight", done, tooLate, notFound)
		}
		if o, err := f.Start(t.Context(), r, "ann", "other"); err != nil || o.ID != "9" {
			t.Errorf("the ninth, asked again: %+v, %v", o, err)
		}
	})
}

// A prefix that is the beginning of the topic's name means the messages without an id as well: the dry run says so.
func TestStart_aDryRunTellsWhatTheOperationDoes(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("orders.delay", "orders", "order", 50)
		request := client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "orders.delay", Prefix: "order"}, Reason: "r", DryRun: true}
		dry := f.start(request)
		request.DryRun = false
		f.start(request)
		defer f.lead()()
		if o := f.ended("1"); dry.Matched != o.Done || dry.Within != 0 || o.Done != 50 {
			t.Errorf("%d are said to be meant, within %d, and %d were cancelled", dry.Matched, dry.Within, o.Done)
		}
	})
}

// A start is repeated when its answer was lost: that it would be refused by now makes it no other one.
func TestStart_repeatedIsAnsweredThoughTimeHasPassed(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 50)
		f.propose(raftfsm.KeepOutcomes{Keep: outcomes.Keep{For: 7 * 24 * 3_600_000, Count: 1000}})
		r := client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{From: f.begun.Add(2 * time.Minute).UnixMilli()}, Reason: "r"}
		repeat := func() (client.Operation, error) { return f.Start(t.Context(), r, "ann", "key") }
		if o, err := repeat(); err != nil || o.ID != "1" {
			t.Fatalf("%+v, %v", o, err)
		}
		f.pass(time.Hour)
		if o, err := repeat(); err != nil || o.ID != "1" {
			t.Errorf("repeated: %+v, %v", o, err)
		}
		if _, err := f.Start(t.Context(), r, "ann", "other key"); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("another one, when the filter means everything: %v", err)
		}
		end := f.lead()
		f.ended("1")
		end()
		f.pass(25 * time.Hour)
		f.propose(raftfsm.Operate{Time: time.Now().UnixMilli()})
		if o, err := repeat(); !errors.Is(err, client.ErrNotFound) || !strings.Contains(err.Error(), "operation 1 was started with this idempotency key") {
			t.Errorf("after a day: %+v, %v", o, err)
		}
	})
}

// What each message would be refused for is refused at once, as a change of one is.
func TestStart_refusesWhatNoMessageMayBe(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 5)
		century := strconv.FormatInt(f.begun.Add(f.Orders.MaxDelay()+time.Minute).UnixMilli(), 10)
		byTopic, toSecret := client.Filter{Topic: "a.delay"}, client.Filter{Target: "secrets"}
		for _, test := range []struct {
			name   string
			r      client.OperationRequest
			code   client.Code // "": it begins
			field  string
			value  string
			detail string
		}{
			{"to a target that is denied", client.OperationRequest{Verb: "change", Filter: byTopic, Change: &client.BulkChange{DeliverTo: "secrets"}}, client.CodeTargetNotAllowed, "change.deliver_to", "secrets", "targets.deny"},
			{"all to one that is denied", client.OperationRequest{Verb: "change", All: true, Change: &client.BulkChange{DeliverTo: "secrets", Shift: "1h"}}, client.CodeTargetNotAllowed, "change.deliver_to", "secrets", "targets.deny"},
			{"to a delay topic", client.OperationRequest{Verb: "change", Filter: byTopic, Change: &client.BulkChange{DeliverTo: "b.delay"}}, client.CodeBadRequest, "change.deliver_to", "b.delay", "is a delay topic"},
			{"to where dead letters go", client.OperationRequest{Verb: "change", Filter: byTopic, Change: &client.BulkChange{DeliverTo: "carillon.dead-letter"}}, client.CodeBadRequest, "change.deliver_to", "carillon.dead-letter", "is for dead letters"},
			{"too late", client.OperationRequest{Verb: "change", Filter: byTopic, Change: &client.BulkChange{DeliverAt: century}}, client.CodeBadRequest, "change.deliver_at", century, "max_delay"},
			{"after too long", client.OperationRequest{Verb: "change", All: true, Change: &client.BulkChange{DeliverAfter: "P36501D"}}, client.CodeBadRequest, "change.deliver_after", "P36501D", "max_delay"},
			{"another time of what may go nowhere", client.OperationRequest{Verb: "change", Filter: toSecret, Change: &client.BulkChange{DeliverAfter: "1h"}}, client.CodeTargetNotAllowed, "filter.target", "secrets", "targets.deny"},
			{"what may go nowhere, now", client.OperationRequest{Verb: "now", Filter: toSecret}, client.CodeTargetNotAllowed, "filter.target", "secrets", "targets.deny"},
			{"a replay of what may go nowhere", client.OperationRequest{Verb: "replay", Filter: toSecret}, client.CodeTargetNotAllowed, "filter.target", "secrets", "targets.deny"},
			{"a replay to a delay topic", client.OperationRequest{Verb: "replay", Filter: byTopic, Change: &client.BulkChange{DeliverTo: "b.delay"}}, client.CodeBadRequest, "change.deliver_to", "b.delay", "is a delay topic"},
			{"elsewhere, of what may go nowhere", client.OperationRequest{Verb: "change", Filter: toSecret, Change: &client.BulkChange{DeliverTo: "orders"}}, "", "", "", ""},
			{"a cancel of what may go nowhere", client.OperationRequest{Verb: "cancel", Filter: toSecret}, "", "", "", ""},
		} {
			test.r.Reason = "r"
			_, err := f.Start(t.Context(), test.r, "ann", "")
			p, _ := errors.AsType[*client.Problem](err)
			switch {
			case test.code == "" && err != nil:
				t.Errorf("%s: %v", test.name, err)
			case test.code != "" && (p == nil || p.Code != test.code || p.Field != test.field || p.Value != test.value || !strings.Contains(p.Detail, test.detail)):
				t.Errorf("%s: %+v", test.name, err)
			}
		}
		if all := f.Local(); len(all.Operations) != 2 {
			t.Errorf("started %+v", all)
		}
	})
}

// No message comes by a topic without a route. But what came before its route was removed can be ended.
func TestStart_refusesATopicOfNoRouteUnlessSomeWait(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("removed", "orders", "a", 5)
		start := func(verb, topic string) (client.Operation, error) {
			return f.Start(t.Context(), client.OperationRequest{Verb: verb, Filter: client.Filter{Topic: topic, Prefix: map[bool]string{verb == "cancel": "a-"}[true]}, Reason: "r"}, "ann", "")
		}
		for verb, topic := range map[string]string{"cancel": "misspelt", "now": "misspelt", "replay": "removed"} {
			_, err := start(verb, topic)
			p, _ := errors.AsType[*client.Problem](err)
			if p == nil || p.Code != client.CodeBadRequest || p.Field != "filter.topic" || p.Value != topic || !strings.Contains(p.Detail, "routes[].from") {
				t.Errorf("%s of %s: %+v", verb, topic, err)
			}
		}
		if _, err := start("cancel", "removed"); err != nil {
			t.Error(err)
		}
		end := f.lead()
		f.expect(f.ended("1"), 3, 0, 0, 0)
		if _, err := start("now", "removed"); err != nil { // which is due at once, and waits
			t.Error(err)
		}
		f.ended("2")
		end()
		f.propose(raftfsm.Ack{Runs: []storage.SeqRun{{First: 1, Last: f.node.Store().NextSeq() - 1}}})
		if _, err := start("now", "removed"); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("when none wait any more: %v", err)
		}
	})
}
