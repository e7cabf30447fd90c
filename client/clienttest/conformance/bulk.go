package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
)

// bulk has the cases of operations and dead letters.
func bulk() []Case {
	return []Case{
		{"operations do to many", func(s *scene) {
			for i := range 5 {
				s.long(fmt.Sprintf("a-%d", i))
				s.long(fmt.Sprintf("b-%d", i))
			}
			a, b := client.Filter{Topic: s.topic, Prefix: "a-"}, client.Filter{Topic: s.topic, Prefix: "b-"}
			dry, err := s.StartOperation(s.ctx, client.OperationRequest{Verb: client.OperationCancel, Filter: a, DryRun: true})
			if err != nil || dry.Matched != 5 || dry.Done != 0 || !dry.DryRun || len(s.list(a)) != 5 {
				s.Errorf("a dry run: %+v, %v", dry, err)
			}
			o := s.operate(client.OperationRequest{Verb: client.OperationCancel, Filter: a, Reason: "not sold any more"})
			if o.Done != 5 || o.TooLate+o.NotFound+o.Failed != 0 || o.Verb != client.OperationCancel || o.Reason != "not sold any more" || o.Ended == 0 || len(s.list(a)) != 0 {
				s.Errorf("cancel: %+v", o)
			}
			s.expectOutcomes("a-0", client.OutcomeCancelled)
			before := s.waits("b-0")
			if o := s.operate(client.OperationRequest{Verb: client.OperationChange, Filter: b, Reason: "summer time", Change: &client.BulkChange{Shift: "-1h"}}); o.Done != 5 {
				s.Errorf("shift: %+v", o)
			}
			if m := s.waits("b-0"); m.Due != before.Due-3_600_000 || m.Seq == before.Seq {
				s.Errorf("it waits as %+v", m)
			}
			if o := s.operate(client.OperationRequest{Verb: client.OperationNow, Filter: b, Reason: "sold out"}); o.Done != 5 {
				s.Errorf("now: %+v", o)
			}
			s.world.Advance(5 * time.Second)
			if got := s.arrived(s.Target()); len(got) != 5 {
				s.Errorf("%q arrived", got)
			}
			all, err := s.Operations(s.ctx)
			if err != nil || len(all) < 3 || all[0].Verb != client.OperationNow {
				s.Errorf("%+v, %v", all, err)
			}
		}},
		{"a shift is written as any delay", func(s *scene) {
			due := func() int64 { return s.waits("a").Due }
			s.long("a")
			for shift, by := range map[string]int64{"PT1H": 3_600_000, "5000": 5000, "-PT1M": -60_000, "1h30m": 5_400_000} {
				before := due()
				o := s.operate(client.OperationRequest{Verb: client.OperationChange, Filter: client.Filter{Topic: s.topic}, Reason: "r", Change: &client.BulkChange{Shift: shift}})
				if after := due(); o.Done != 1 || after != before+by {
					s.Errorf("%s moves it by %d ms: %+v", shift, after-before, o)
				}
			}
		}},
		{"a key starts one operation", func(s *scene) {
			s.long("a")
			s.long("b")
			const body = `{"verb":"cancel","filter":{"topic":"TOPIC","prefix":"%s"},"reason":"r"}`
			var ids []string
			for _, prefix := range []string{"a", "a"} {
				var o client.Operation
				if status := s.send("POST", "/v1/operations", strings.ReplaceAll(fmt.Sprintf(body, prefix), "TOPIC", s.topic), "Idempotency-Key: one", &o); status != http.StatusAccepted {
					s.Fatalf("status %d, %+v", status, o)
				}
				ids = append(ids, o.ID)
			}
			if ids[0] == "" || ids[0] != ids[1] {
				s.Errorf("started %q", ids)
			}
			var p client.Problem
			if status := s.send("POST", "/v1/operations", strings.ReplaceAll(fmt.Sprintf(body, "b"), "TOPIC", s.topic), "Idempotency-Key: one", &p); status != http.StatusConflict || p.Code != client.CodeKeyReused || p.Field != "Idempotency-Key" {
				s.Errorf("another with the key: %d, %+v", status, p)
			}
			if _, err := s.WaitOperation(s.ctx, ids[0], nil); err != nil {
				s.Fatalf("%v", err)
			}
			if got := s.list(client.Filter{Topic: s.topic}); strings.Join(got, " ") != "b" {
				s.Errorf("%q wait", got)
			}
		}},
		{"operations are checked", func(s *scene) {
			first := s.long("a")
			for what, r := range map[string]client.OperationRequest{
				"no filter":           {Verb: client.OperationCancel},
				"no verb":             {Filter: client.Filter{Topic: s.topic}},
				"no change":           {Verb: client.OperationChange, Filter: client.Filter{Topic: s.topic}},
				"a code of messages":  {Verb: client.OperationCancel, Filter: client.Filter{Topic: s.topic, Code: "malformed"}},
				"what is aside":       {Verb: client.OperationCancel, Filter: client.Filter{Topic: s.topic, States: []string{client.StateWaiting, client.StateAside}}},
				"a state there isn't": {Verb: client.OperationCancel, Filter: client.Filter{Topic: s.topic, States: []string{"asleep"}}},
				"no reason":           {Verb: client.OperationCancel, Filter: client.Filter{Topic: s.topic}},
			} {
				if r.Reason = "tidying"; what == "no reason" {
					r.Reason = ""
				}
				_, err := s.StartOperation(s.ctx, r)
				s.refused(what, err, client.ErrBadRequest)
			}
			_, err := s.Operation(s.ctx, "7777777")
			s.refused("unknown", err, client.ErrNotFound)
			_, err = s.StopOperation(s.ctx, "7777777", "it is none")
			s.refused("stop of unknown", err, client.ErrNotFound)
			if m := s.waits("a"); m.Seq != first.Seq {
				s.Errorf("it waits as %+v", m)
			}
		}},
		{"a time is a condition if something may lie beyond it", func(s *scene) {
			s.long("a")
			century := 36500 * 24 * time.Hour // as the configuration that ships allows, and clienttest
			for _, test := range []struct {
				verb  string
				f     client.Filter
				field string // that is no condition; "": some is
			}{
				{client.OperationCancel, client.Filter{To: s.ms(century - time.Minute)}, "filter.to"}, // time goes by on the way
				{client.OperationCancel, client.Filter{From: s.ms(-time.Hour), To: s.ms(century)}, "filter.to"},
				{client.OperationCancel, client.Filter{From: s.ms(-time.Hour)}, "filter.from"},
				{client.OperationCancel, client.Filter{From: s.ms(30 * time.Second)}, "filter.from"},
				{client.OperationCancel, client.Filter{From: s.ms(5 * time.Minute)}, ""},
				{client.OperationCancel, client.Filter{To: s.ms(98 * century / 100)}, ""},
				{client.OperationCancel, client.Filter{From: s.ms(time.Hour), To: s.ms(century)}, ""},
				{client.OperationReplay, client.Filter{To: s.ms(time.Hour)}, "filter.to"},
				{client.OperationReplay, client.Filter{From: 100_000_000_000, To: s.ms(time.Hour)}, "filter.to"},
				{client.OperationReplay, client.Filter{From: s.ms(-time.Second)}, ""},
				{client.OperationReplay, client.Filter{To: s.ms(-time.Hour)}, ""},
			} {
				for _, all := range []bool{false, true} {
					r := client.OperationRequest{Verb: test.verb, Filter: test.f, All: all, DryRun: true}
					_, err := s.StartOperation(s.ctx, r)
					switch {
					case all == (test.field != ""):
						if err != nil {
							s.Errorf("%+v: %v", r, err)
						}
					case all:
						if p := s.refused(fmt.Sprintf("%+v", r), err, client.ErrBadRequest); p.Field != "all" {
							s.Errorf("%+v: the problem names %+v", r, p)
						}
					default:
						if p := s.refused(fmt.Sprintf("%+v", r), err, client.ErrBadRequest); p.Field != test.field || !strings.Contains(p.Detail, `"all": true`) {
							s.Errorf("%+v: the problem names %+v", r, p)
						}
					}
				}
			}
		}},
		{"dead letters are sent again", func(s *scene) {
			s.produce("unreadable", client.To(s.Target()), func(h []client.Header) []client.Header {
				return append(h, client.Header{Key: client.HeaderAt, Value: []byte("1900000000")})
			})
			s.produce("not a target", client.After(time.Minute), client.To(s.topic), client.ID("a"))
			s.produce("good", client.After(time.Minute))
			var letters []client.DeadLetter
			for d, err := range s.DeadLetters(s.ctx, client.Filter{Topic: s.topic}) {
				if err != nil {
					s.Fatalf("%v", err)
				}
				letters = append(letters, d)
			}
			slices.Reverse(letters) // the newest come first
			if len(letters) != 2 || letters[0].Code != string(client.CodeMalformed) || letters[1].Code != "target-invalid" || letters[1].ID != "a" || letters[0].Detail == "" || letters[0].Replayed || letters[0].Payload != nil || letters[0].Time == 0 || letters[0].DelayTopic != s.topic {
				s.Fatalf("dead letters are %+v", letters)
			}
			at := client.Position{Topic: letters[1].Topic, Partition: letters[1].Partition, Offset: letters[1].Offset}
			d, err := s.DeadLetter(s.ctx, at)
			if err != nil || d.Payload == nil || string(d.Payload.Value) != "not a target" || d.Origin != letters[1].Origin {
				s.Errorf("%+v, %v", d, err)
			}
			_, err = s.Replay(s.ctx, at, client.ReplayRequest{})
			s.refused("to a delay topic", err, client.ErrBadRequest)
			if a, err := s.Replay(s.ctx, at, client.ReplayRequest{DeliverAfter: "1m", DeliverTo: s.Other(), Reason: "mended"}); err != nil || a.Seq == 0 {
				s.Errorf("%+v, %v", a, err)
			}
			_, err = s.Replay(s.ctx, at, client.ReplayRequest{DeliverTo: s.Other()})
			s.refused("again", err, client.ErrReplayed)
			if d, err := s.DeadLetter(s.ctx, at); err != nil || !d.Replayed {
				s.Errorf("%+v, %v", d, err)
			}
			_, err = s.DeadLetter(s.ctx, client.Position{Topic: at.Topic, Offset: 7_777_777})
			s.refused("unknown", err, client.ErrNotFound)
			s.expectArrived(65*time.Second, "good")
			if got := s.arrived(s.Other()); len(got) != 1 || got[0] != "not a target" {
				s.Errorf("%q arrived", got)
			}
		}},
		{"dead letters are sent again in bulk", func(s *scene) {
			for i := range 3 {
				s.produce(fmt.Sprint("unreadable ", i), func(h []client.Header) []client.Header {
					return append(h, client.Header{Key: client.HeaderAfter, Value: []byte("soon")})
				})
			}
			s.produce("not a target", client.After(time.Minute), client.To(s.topic))
			s.produce("waits", client.After(24*time.Hour), client.ID("taken"))
			s.produce("taken", client.ID("taken"), func(h []client.Header) []client.Header {
				return append(h, client.Header{Key: client.HeaderAfter, Value: []byte("soon")})
			})
			letters := s.deadLetters(client.Filter{Topic: s.topic}, 5)
			first := letters[len(letters)-1]
			if _, err := s.Replay(s.ctx, client.Position{Topic: first.Topic, Partition: first.Partition, Offset: first.Offset}, client.ReplayRequest{DeliverAfter: "1m"}); err != nil {
				s.Fatalf("%v", err)
			}
			all := client.OperationRequest{Verb: client.OperationReplay, Filter: client.Filter{Topic: s.topic}, Reason: "mended", Change: &client.BulkChange{DeliverAfter: "1m"}}
			dry := all
			dry.DryRun = true
			if o, err := s.StartOperation(s.ctx, dry); err != nil || o.Matched != 4 || o.Within != 0 || o.Done+o.TooLate != 0 || o.ID != "" {
				s.Errorf("a dry run: %+v, %v", o, err)
			}
			o := s.operate(all)
			if o.Matched != 4 || o.Done != 2 || o.TooLate != 1 || o.NotFound != 0 || o.Failed != 2 || o.Problem == "" || o.Verb != client.OperationReplay || o.Reason != "mended" {
				s.Errorf("%+v", o)
			}
			some := all
			some.Filter.Code, some.Change = "target-invalid", &client.BulkChange{DeliverAfter: "1m", DeliverTo: s.Other()}
			if o := s.operate(some); o.Matched != 1 || o.Done != 1 || o.TooLate+o.Failed != 0 {
				s.Errorf("to another target: %+v", o)
			}
			s.produce("too late for these", func(h []client.Header) []client.Header {
				return append(h, client.Header{Key: client.HeaderAfter, Value: []byte("soon")})
			})
			s.deadLetters(client.Filter{Topic: s.topic}, 6)
			s.world.Advance(65 * time.Second)
			got := s.arrived(s.Target())
			slices.Sort(got)
			if want := []string{"unreadable 0", "unreadable 1", "unreadable 2"}; !slices.Equal(got, want) {
				s.Errorf("%q arrived, want %q", got, want)
			}
			if got := s.arrived(s.Other()); !slices.Equal(got, []string{"not a target"}) {
				s.Errorf("%q arrived there", got)
			}
			again := all
			again.Filter.Code, again.Again, again.Change = string(client.CodeMalformed), true, nil
			if o := s.operate(again); o.Matched != 5 || o.Done != 4 || o.TooLate != 0 || o.Failed != 1 || !o.Again {
				s.Errorf("again: %+v", o)
			}
			s.world.Advance(5 * time.Second)
			if got := s.arrived(s.Target()); len(got) != 3+4 {
				s.Errorf("%q arrived in all", got)
			}
		}},
		{"replays in bulk are checked", func(s *scene) {
			topic := client.Filter{Topic: s.topic}
			for what, test := range map[string]struct {
				r     client.OperationRequest
				field string
			}{
				"no filter":         {client.OperationRequest{}, "filter"},
				"all and a filter":  {client.OperationRequest{Filter: topic, All: true}, "all"},
				"a prefix":          {client.OperationRequest{Filter: client.Filter{Topic: s.topic, Prefix: "a"}}, "filter.prefix"},
				"a state":           {client.OperationRequest{Filter: client.Filter{Topic: s.topic, States: []string{client.StateWaiting}}}, "filter.states"},
				"a shift":           {client.OperationRequest{Filter: topic, Change: &client.BulkChange{Shift: "1h"}}, "change.shift"},
				"a time in seconds": {client.OperationRequest{Filter: topic, Change: &client.BulkChange{DeliverAt: "1900000000"}}, "change.deliver_at"},
				"no target":         {client.OperationRequest{Filter: topic, Change: &client.BulkChange{DeliverTo: "a/b"}}, "change.deliver_to"},
			} {
				test.r.Verb, test.r.Reason = client.OperationReplay, "tidying"
				_, err := s.StartOperation(s.ctx, test.r)
				s.refused(what, err, client.ErrBadRequest)
				if p, ok := errors.AsType[*client.Problem](err); !ok || p.Field != test.field {
					s.Errorf("%s: %+v, want the field %s", what, err, test.field)
				}
			}
			if o := s.operate(client.OperationRequest{Verb: client.OperationReplay, Filter: topic, Reason: "there are none"}); o.Matched+o.Done+o.TooLate+o.NotFound+o.Failed != 0 {
				s.Errorf("%+v", o)
			}
		}},
	}
}

// deadLetters waits until so many are listed, and returns them.
func (s *scene) deadLetters(f client.Filter, want int) (letters []client.DeadLetter) {
	s.Helper()
	for range 60 {
		letters = nil
		for d, err := range s.DeadLetters(s.ctx, f) {
			if err != nil {
				s.Fatalf("%v", err)
			}
			letters = append(letters, d)
		}
		if len(letters) == want {
			return letters
		}
		s.world.Advance(time.Second)
	}
	s.Fatalf("%d dead letters, want %d: %+v", len(letters), want, letters)
	return nil
}

// operate has an operation done, and returns it as it ended.
func (s *scene) operate(r client.OperationRequest) client.Operation {
	s.Helper()
	o, err := s.StartOperation(s.ctx, r)
	if err != nil {
		s.Fatalf("%v", err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	ended, err := s.WaitOperation(ctx, o.ID, nil)
	if err != nil || ended.ID != o.ID || ended.State != client.OperationFinished {
		s.Fatalf("%+v, %v", ended, err)
	}
	return ended
}
