package conformance

import (
	"fmt"
	"time"

	"github.com/carillonmq/carillon/client"
)

// endings has the cases of what ends or changes a message that waits.
func endings() []Case {
	return []Case{
		{"cancelled is never delivered", func(s *scene) {
			first := s.soon("a")
			a, err := s.Cancel(s.ctx, s.name("a"), "paid")
			if err != nil || a.Code != client.AnswerCancelled || a.Seq != first.Seq || a.ID != "a" || a.Topic != s.topic {
				s.Fatalf("%+v, %v", a, err)
			}
			again, err := s.Cancel(s.ctx, s.name("a"), "")
			if err != nil || again.Code != client.AnswerAlreadyCancelled || again.Seq != first.Seq || again.Outcome == nil || again.Outcome.Kind != client.OutcomeCancelled {
				s.Errorf("again: %+v, %v", again, err)
			}
			meant := s.name("a")
			meant.Seq = first.Seq
			if again, err := s.Cancel(s.ctx, meant, ""); err != nil || again.Code != client.AnswerAlreadyCancelled {
				s.Errorf("again, this very one: %+v, %v", again, err)
			}
			s.expectArrived(65 * time.Second)
			s.expectOutcomes("a", client.OutcomeCancelled)
			if b := s.soon("a"); b.Code != client.AnswerScheduled {
				s.Errorf("the id is free: %+v", b)
			}
			s.expectArrived(65*time.Second, "value of a")
		}},
		{"a cancel says why not", func(s *scene) {
			_, err := s.Cancel(s.ctx, s.name("never was"), "")
			s.refused("unknown", err, client.ErrNotFound)
			a, b := s.soon("a"), s.long("b")
			wrong := s.name("b")
			wrong.Seq = a.Seq
			_, err = s.Cancel(s.ctx, wrong, "")
			if p := s.refused("another seq", err, client.ErrConflict); p.Seq != b.Seq {
				s.Errorf("the problem names %d, want %d", p.Seq, b.Seq)
			}
			s.expectArrived(65*time.Second, "value of a")
			_, err = s.Cancel(s.ctx, s.name("a"), "")
			if p := s.refused("delivered", err, client.ErrTooLate); p.Seq != a.Seq || p.Outcome == nil || p.Outcome.Kind != client.OutcomeDelivered || p.Outcome.Offset == nil {
				s.Errorf("the problem tells %+v", p)
			}
			right := s.name("b")
			right.Seq = b.Seq
			if got, err := s.Cancel(s.ctx, right, ""); err != nil || got.Seq != b.Seq {
				s.Errorf("its seq: %+v, %v", got, err)
			}
		}},
		{"a change leaves the rest", func(s *scene) {
			r := s.request("a", time.Hour)
			r.Key, r.ExpiresAfter, r.Headers = client.Text("k"), "1h", []client.DataHeader{{Key: "lang", Value: client.Text("de")}}
			first := s.schedule(r)
			changed, err := s.Change(s.ctx, s.name("a"), client.ChangeRequest{DeliverAfter: "1m", Reason: "sooner"})
			if err != nil || changed.Code != client.AnswerReplaced || changed.Before != first.Seq || changed.Seq <= first.Seq {
				s.Fatalf("%+v, %v", changed, err)
			}
			m := s.waits("a")
			if p := m.Payload; m.Seq != changed.Seq || m.Due > s.ms(time.Minute) || m.Due < s.ms(50*time.Second) || p == nil || string(p.Key) != "k" || string(p.Value) != "value of a" {
				s.Errorf("it waits as %+v", m)
			}
			if m.Expires == 0 || m.From != fmt.Sprintf("api/%d", first.Seq) {
				s.Errorf("it waits as %+v", m)
			}
			second := s.name("a")
			second.Seq = changed.Seq
			changed, err = s.Change(s.ctx, second, client.ChangeRequest{DeliverTo: s.Other(), Value: client.Data{Null: true}, Headers: []client.DataHeader{{Key: "lang", Value: client.Text("fr")}}})
			if err != nil || changed.Before != second.Seq {
				s.Fatalf("%+v, %v", changed, err)
			}
			_, err = s.Change(s.ctx, second, client.ChangeRequest{DeliverAfter: "2m"})
			if p := s.refused("the seq before", err, client.ErrConflict); p.Seq != changed.Seq {
				s.Errorf("the problem names %d", p.Seq)
			}
			s.expectOutcomes("a", client.OutcomeReplaced, client.OutcomeReplaced, client.OutcomeRefused)
			s.expectArrived(65 * time.Second)
			rs := s.records(s.Other())
			if len(rs) != 1 || rs[0].Value != nil || string(rs[0].Key) != "k" || header(rs[0], "lang") != "fr" || header(rs[0], client.HeaderDeliveredFrom) != fmt.Sprintf("api/%d", first.Seq) {
				s.Errorf("%d arrived elsewhere", len(rs))
			}
			_, err = s.Change(s.ctx, s.name("a"), client.ChangeRequest{DeliverAfter: "1m"})
			s.refused("delivered", err, client.ErrTooLate)
			_, err = s.Change(s.ctx, s.name("b"), client.ChangeRequest{DeliverAfter: "1m"})
			s.refused("unknown", err, client.ErrNotFound)
		}},
		{"a change is checked", func(s *scene) {
			first := s.long("a")
			for field, r := range map[string]client.ChangeRequest{
				"deliver_at":     {DeliverAt: "1900000000"},
				"deliver_to":     {DeliverTo: s.topic},
				"expires_after":  {ExpiresAfter: "0"},
				"headers[0].key": {Headers: []client.DataHeader{{Key: "deliver-at"}}},
			} {
				_, err := s.Change(s.ctx, s.name("a"), r)
				if p := s.refused(field, err, client.ErrBadRequest); p.Field != field {
					s.Errorf("the problem of %s names %q: %s", field, p.Field, p.Detail)
				}
			}
			if m := s.waits("a"); m.Seq != first.Seq {
				s.Errorf("it waits as %+v", m)
			}
		}},
		{"now is now", func(s *scene) {
			first := s.long("a")
			s.long("b")
			wrong := s.name("a")
			wrong.Seq = first.Seq + 1000
			_, err := s.Now(s.ctx, wrong, "")
			s.refused("another seq", err, client.ErrConflict)
			a, err := s.Now(s.ctx, s.name("a"), "cannot wait")
			if err != nil || a.Code != client.AnswerReplaced || a.Before != first.Seq {
				s.Errorf("%+v, %v", a, err)
			}
			s.expectArrived(5*time.Second, "value of a")
			_, err = s.Now(s.ctx, s.name("a"), "")
			s.refused("delivered", err, client.ErrTooLate)
			_, err = s.Now(s.ctx, s.name("c"), "")
			s.refused("unknown", err, client.ErrNotFound)
		}},
		{"messages without an id have a name", func(s *scene) {
			first := s.produce("one", client.After(time.Hour))
			second := s.produce("two", client.After(time.Hour))
			id := func(r *client.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }
			a, err := s.Cancel(s.ctx, s.name(id(first)), "")
			if err != nil || a.Code != client.AnswerCancelled || a.ID != id(first) {
				s.Errorf("%+v, %v", a, err)
			}
			_, err = s.Cancel(s.ctx, s.name(id(first)), "")
			s.refused("again", err, client.ErrNotFound)
			if a, err := s.Now(s.ctx, s.name(id(second)), ""); err != nil || a.Code != client.AnswerReplaced {
				s.Errorf("%+v, %v", a, err)
			}
			s.expectArrived(5*time.Second, "two")
			if r := s.record(0); header(r, client.HeaderDeliveredID) != id(second) || header(r, client.HeaderDeliveredFrom) != id(second) {
				s.Errorf("it has the headers %v", r.Headers)
			}
			_, err = s.Get(s.ctx, s.topic, id(second))
			s.refused("delivered", err, client.ErrNotFound)
		}},
		{"what expired is dropped", func(s *scene) {
			r := s.request("a", time.Minute)
			r.ExpiresAfter = "1m"
			s.schedule(r)
			if m := s.waits("a"); m.Expires != m.Due+60_000 {
				s.Errorf("it waits as %+v", m)
			}
			kept := s.request("b", time.Minute)
			kept.ExpiresAfter = "1h"
			s.schedule(kept)
			target := client.Pause{Kind: client.PauseTarget, Name: s.Target(), Why: "stock-taking"}
			if _, err := s.Pause(s.ctx, target); err != nil {
				s.Fatalf("%v", err)
			}
			s.expectArrived(3 * time.Minute)
			m := s.waits("a")
			s.world.Advance(time.Second) // the node that is asked may follow: it hears of the time with the log
			e, err := s.Explain(s.ctx, s.topic, "a")
			if err != nil || e.Waiting == nil || e.Waiting.State != client.StateExpired || m.State != client.StateExpired {
				s.Errorf("explain tells %+v, %v; get tells %+v", e.Waiting, err, m)
			}
			if got := s.list(client.Filter{Topic: s.topic, States: []string{client.StateExpired}}); len(got) != 1 {
				s.Errorf("%q are listed as expired", got)
			}
			if count, err := s.Count(s.ctx, client.Filter{Topic: s.topic, States: []string{client.StatePaused}}); err != nil || count.Count != 1 {
				s.Errorf("%d are counted as paused, %v", count.Count, err)
			}
			_, err = s.Cancel(s.ctx, s.name("a"), "")
			if p := s.refused("expired", err, client.ErrTooLate); p.Outcome == nil || p.Outcome.Kind != client.OutcomeExpired {
				s.Errorf("the problem tells %+v", p)
			}
			if _, err := s.Resume(s.ctx, target); err != nil {
				s.Fatalf("%v", err)
			}
			s.expectArrived(5*time.Second, "value of b")
			s.expectOutcomes("a", client.OutcomeExpired)
		}},
		{"a pause holds back", func(s *scene) {
			for _, p := range []client.Pause{{Kind: client.PauseTopic, Name: s.topic, Why: "stock-taking"}, {Kind: client.PauseTarget, Name: s.Target(), Why: "too many"}} {
				s.from = len(s.world.Delivered())
				s.soon("a")
				s.soon("b")
				if c, err := s.Pause(s.ctx, p); err != nil || !c.Changed {
					s.Fatalf("%+v, %v", c, err)
				}
				second := client.Pause{Kind: p.Kind, Name: p.Name, Why: "likewise"}
				if c, err := s.Pause(s.ctx, second); err != nil || c.Changed || c.Was == nil || c.Was.Name != p.Name || c.Was.Why != p.Why || c.Was.Since == 0 {
					s.Errorf("again: %+v, %v", c, err)
				}
				if m := s.waits("a"); m.State != client.StatePaused {
					s.Errorf("it is %s", m.State)
				}
				s.expectPause(p, true)
				s.expectArrived(65 * time.Second)
				if a, err := s.Cancel(s.ctx, s.name("b"), ""); err != nil || a.Code != client.AnswerCancelled {
					s.Errorf("a cancel of what is due and paused: %+v, %v", a, err)
				}
				if c, err := s.Resume(s.ctx, p); err != nil || !c.Changed {
					s.Errorf("%+v, %v", c, err)
				}
				if c, err := s.Resume(s.ctx, p); err != nil || c.Changed {
					s.Errorf("again: %+v, %v", c, err)
				}
				s.expectPause(p, false)
				s.expectArrived(5*time.Second, "value of a")
			}
		}},
		{"a pause says why", func(s *scene) {
			_, err := s.Pause(s.ctx, client.Pause{Kind: client.PauseTopic, Name: s.topic})
			if s.refused("pause", err, client.ErrBadRequest).Field != "why" {
				s.Errorf("a pause without words: %v", err)
			}
		}},
	}
}

// expectPause checks whether a pause is told of.
func (s *scene) expectPause(want client.Pause, there bool) {
	s.Helper()
	s.world.Advance(time.Second) // the node that is asked may follow
	pauses, err := s.Pauses(s.ctx)
	told := false
	for _, p := range pauses {
		told = told || p.Kind == want.Kind && p.Name == want.Name && p.Why == want.Why && p.Since > 0
	}
	if err != nil || told != there {
		s.Errorf("pauses are %+v, %v, want %+v: %v", pauses, err, want, there)
	}
}
