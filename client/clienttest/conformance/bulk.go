package conformance

import (
	"context"
	"fmt"
	"slices"
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
		{"operations are checked", func(s *scene) {
			first := s.long("a")
			for what, r := range map[string]client.OperationRequest{
				"no filter":           {Verb: client.OperationCancel},
				"no verb":             {Filter: client.Filter{Topic: s.topic}},
				"no change":           {Verb: client.OperationChange, Filter: client.Filter{Topic: s.topic}},
				"a code of messages":  {Verb: client.OperationCancel, Filter: client.Filter{Topic: s.topic, Code: "malformed"}},
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
			_, err = s.StopOperation(s.ctx, "7777777")
			s.refused("stop of unknown", err, client.ErrNotFound)
			if m := s.waits("a"); m.Seq != first.Seq {
				s.Errorf("it waits as %+v", m)
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
	}
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
