package bulk

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
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
		r := client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{From: f.begun.Add(time.Minute).UnixMilli()}, Reason: "r"}
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
