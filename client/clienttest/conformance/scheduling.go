package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
)

// scheduling has the cases of how messages come to wait, and arrive.
func scheduling() []Case {
	return []Case{
		{"a message arrives", func(s *scene) {
			due := s.ms(time.Minute)
			a := s.schedule(client.ScheduleRequest{
				Topic: s.topic, ID: "order/7", DeliverAt: fmt.Sprint(due), Key: client.Bytes([]byte{0, 42}), Value: client.Data{JSON: []byte(`{"parcel":"<7>"}`)},
				Headers: []client.DataHeader{{Key: "lang", Value: client.Text("de")}, {Key: "null"}, {Key: "lang", Value: client.Text("fr")}},
			})
			if a.Code != client.AnswerScheduled || a.Topic != s.topic || a.ID != "order/7" || a.Seq == 0 || a.Before != 0 || a.Again {
				s.Errorf("answer %+v", a)
			}
			m := s.waits("order/7")
			if m.Topic != s.topic || m.ID != "order/7" || !m.Chosen || m.Seq != a.Seq || m.Due != due || m.Target != s.Target() || m.State != client.StateWaiting || m.From != fmt.Sprintf("api/%d", a.Seq) || m.Expires != 0 {
				s.Errorf("it waits as %+v", m)
			}
			if p := m.Payload; p == nil || string(p.Key) != "\x00*" || string(p.Value) != `{"parcel":"<7>"}` {
				s.Errorf("its payload is %+v", p)
			}
			s.expectArrived(55 * time.Second)
			s.expectArrived(10*time.Second, `{"parcel":"<7>"}`)
			r := s.record(0)
			var headers []string
			for _, h := range r.Headers {
				text := h.Key + "=" + string(h.Value)
				if h.Value == nil {
					text = h.Key
				}
				headers = append(headers, text)
			}
			want := fmt.Sprintf("lang=de null lang=fr delivered-id=order/7 delivered-for=%d delivered-from=api/%d delivered-seq=", due, a.Seq)
			if got := strings.Join(headers, " "); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, fmt.Sprintf("/%d", a.Seq)) || string(r.Key) != "\x00*" {
				s.Errorf("it has the key %q and the headers %s, want %s", r.Key, got, want)
			}
			if o := s.expectOutcomes("order/7", client.OutcomeDelivered)[0]; o.Seq != a.Seq || o.Due != due || o.At < due || o.At > due+1000 || o.Target != s.Target() || o.Partition == nil || o.Offset == nil || *o.Offset != r.Offset {
				s.Errorf("its outcome is %+v", o)
			}
			if s.life("order/7").Message != nil {
				s.Errorf("it waits still")
			}
		}},
		{"an id is made", func(s *scene) {
			first, second := s.soon(""), s.soon("")
			if first.ID == second.ID || !strings.HasPrefix(first.ID, client.OwnPrefix) || len(first.ID) != len(client.OwnPrefix)+26 {
				s.Errorf("ids %q, %q", first.ID, second.ID)
			}
			if m := s.waits(first.ID); m.Seq != first.Seq {
				s.Errorf("it waits as %+v", m)
			}
			if a, err := s.Cancel(s.ctx, s.name(second.ID), ""); err != nil || a.Seq != second.Seq {
				s.Errorf("%+v, %v", a, err)
			}
			s.world.Advance(65 * time.Second)
			if rs := s.records(s.Target()); len(rs) != 1 || header(rs[0], client.HeaderDeliveredID) != first.ID {
				s.Errorf("%d arrived", len(rs))
			}
			s.expectOutcomes(first.ID, client.OutcomeDelivered)
		}},
		{"the newer takes the place", func(s *scene) {
			first := s.soon("a")
			r := s.request("a", 2*time.Minute)
			r.Value = client.Text("second")
			second := s.schedule(r)
			if second.Code != client.AnswerReplaced || second.Before != first.Seq || second.Seq <= first.Seq {
				s.Errorf("answer %+v after %+v", second, first)
			}
			if o := s.expectOutcomes("a", client.OutcomeReplaced)[0]; o.Seq != first.Seq || o.By != second.Seq {
				s.Errorf("outcome %+v", o)
			}
			s.expectArrived(65 * time.Second)
			s.expectArrived(60*time.Second, "second")
			third := s.soon("a")
			if third.Code != client.AnswerScheduled || third.Before != 0 {
				s.Errorf("answer %+v", third)
			}
			s.expectArrived(65*time.Second, "second", "value of a")
		}},
		{"conditions let through", func(s *scene) {
			try := func(condition string) (client.Answer, error) {
				r := s.request("a", time.Hour)
				r.If = condition
				return s.Schedule(s.ctx, r)
			}
			_, err := try(client.ConditionPresent)
			if p := s.refused("present, none waits", err, client.ErrConflict); p.Seq != 0 {
				s.Errorf("the problem names %d", p.Seq)
			}
			_, err = try("7777777")
			s.refused("a seq, none waits", err, client.ErrConflict)
			first, err := try(client.ConditionAbsent)
			if err != nil || first.Code != client.AnswerScheduled {
				s.Fatalf("absent: %+v, %v", first, err)
			}
			_, err = try(client.ConditionAbsent)
			if p := s.refused("absent, one waits", err, client.ErrConflict); p.Seq != first.Seq {
				s.Errorf("the problem names %d, want %d", p.Seq, first.Seq)
			}
			_, err = try(fmt.Sprint(first.Seq + 1000))
			s.refused("another seq", err, client.ErrConflict)
			second, err := try(fmt.Sprint(first.Seq))
			if err != nil || second.Code != client.AnswerReplaced {
				s.Errorf("its seq: %+v, %v", second, err)
			}
			third, err := try(client.ConditionPresent)
			if err != nil || third.Before != second.Seq {
				s.Errorf("present: %+v, %v", third, err)
			}
			_, err = try("sometimes")
			s.refused("no condition", err, client.ErrBadRequest)
			s.expectOutcomes("a", client.OutcomeRefused, client.OutcomeRefused, client.OutcomeRefused, client.OutcomeRefused, client.OutcomeReplaced, client.OutcomeReplaced)
		}},
		{"a key counts once", func(s *scene) {
			r := s.request("a", time.Minute)
			r.IdempotencyKey = "key 1"
			first := s.schedule(r)
			again := s.schedule(r)
			if first.Again || !again.Again || again.Seq != first.Seq || again.Code != first.Code || again.ID != first.ID {
				s.Errorf("answers %+v, %+v", first, again)
			}
			other := r
			other.Value = client.Text("other")
			_, err := s.Schedule(s.ctx, other)
			s.refused("another content", err, client.ErrKeyReused)
			unnamed := s.request("", time.Minute)
			unnamed.IdempotencyKey = "key 2"
			if a, b := s.schedule(unnamed), s.schedule(unnamed); a.ID != b.ID || a.Seq != b.Seq || !b.Again {
				s.Errorf("without an id: %+v, %+v", a, b)
			}
			conditional := s.request("a", time.Minute)
			conditional.If, conditional.IdempotencyKey = client.ConditionAbsent, "key 3"
			_, err = s.Schedule(s.ctx, conditional)
			s.refused("a condition", err, client.ErrConflict)
			s.expectArrived(65*time.Second, "value of a", "value of ")
			if late := s.schedule(r); !late.Again || late.Seq != first.Seq {
				s.Errorf("after it was delivered: %+v", late)
			}
			_, err = s.Schedule(s.ctx, conditional)
			s.refused("a condition, again, though it would hold now", err, client.ErrConflict)
			s.expectArrived(65*time.Second, "value of a", "value of ")
		}},
		{"a batch is many", func(s *scene) {
			wrong, late := s.request("b", time.Minute), s.request("a", 2*time.Minute)
			wrong.DeliverTo, late.If = "no topic", client.ConditionAbsent
			items, err := s.ScheduleBatch(s.ctx, []client.ScheduleRequest{s.request("a", time.Minute), wrong, late, s.request("c", time.Minute)})
			if err != nil || len(items) != 4 {
				s.Fatalf("%+v, %v", items, err)
			}
			for i, want := range []error{nil, client.ErrBadRequest, client.ErrConflict, nil} {
				switch {
				case want != nil && items[i].Problem != nil:
					s.refused(fmt.Sprintf("item %d", i), items[i].Problem, want)
				case want != nil || items[i].Answer == nil || items[i].Answer.Code != client.AnswerScheduled:
					s.Errorf("item %d is %+v", i, items[i])
				}
			}
			s.expectArrived(65*time.Second, "value of a", "value of c")
			_, err = s.ScheduleBatch(s.ctx, make([]client.ScheduleRequest, client.MostBatched+1))
			s.refused("too many", err, client.ErrBadRequest)
		}},
		{"order is that of time", func(s *scene) {
			begin := s.ms(0)
			for i, minutes := range []int64{3, 1, 2, 1, 3} {
				r := s.request(fmt.Sprint(i), 0)
				r.DeliverAt, r.Key = fmt.Sprint(begin+minutes*60_000), client.Text("k")
				s.schedule(r)
			}
			s.expectArrived(4*time.Minute, "value of 1", "value of 3", "value of 2", "value of 0", "value of 4")
		}},
		{"requests are checked", func(s *scene) {
			good := s.request("a", time.Minute)
			for field, spoil := range map[string]func(*client.ScheduleRequest){
				"topic":           func(r *client.ScheduleRequest) { r.Topic = "plain" },
				"deliver_at":      func(r *client.ScheduleRequest) { r.DeliverAt = "1900000000" },
				"deliver_after":   func(r *client.ScheduleRequest) { r.DeliverAfter = "7d" },
				"deliver_to":      func(r *client.ScheduleRequest) { r.DeliverTo = s.topic },
				"expires_at":      func(r *client.ScheduleRequest) { r.ExpiresAt = s.at(time.Second) },
				"expires_after":   func(r *client.ScheduleRequest) { r.ExpiresAfter = "-1s" },
				"id":              func(r *client.ScheduleRequest) { r.ID = "topic/1/2" },
				"if":              func(r *client.ScheduleRequest) { r.If = "0" },
				"partition":       func(r *client.ScheduleRequest) { r.Partition = new(int32(-1)) },
				"headers[0].key":  func(r *client.ScheduleRequest) { r.Headers = []client.DataHeader{{Key: "Deliver-At"}} },
				"idempotency_key": func(r *client.ScheduleRequest) { r.IdempotencyKey = strings.Repeat("k", 257) },
			} {
				r := good
				spoil(&r)
				_, err := s.Schedule(s.ctx, r)
				if p := s.refused(field, err, client.ErrBadRequest); p.Field != field {
					s.Errorf("the problem of %s names %q: %s", field, p.Field, p.Detail)
				}
			}
			for what, spoil := range map[string]func(*client.ScheduleRequest){
				"an id of the cluster's own": func(r *client.ScheduleRequest) { r.ID = "api/7" },
				"beyond a hundred years":     func(r *client.ScheduleRequest) { r.DeliverAfter, r.DeliverAt = "P40000D", "" },
				"a null id":                  func(r *client.ScheduleRequest) { r.DeliverAt = "" },
				"two kinds of data":          func(r *client.ScheduleRequest) { r.Value = client.Data{Text: new("a"), Base64: new("YQ==")} },
			} {
				r := good
				spoil(&r)
				_, err := s.Schedule(s.ctx, r)
				s.refused(what, err, client.ErrBadRequest)
			}
			s.expectArrived(65 * time.Second)
		}},
		{"a record asks for the same", func(s *scene) {
			first := s.produce("one", client.After(time.Minute))
			named := s.produce("two", client.After(time.Minute), client.ID("a"), client.KeyBytes([]byte("K")))
			s.produce("three", client.After(2*time.Minute), client.ID("a"), client.IfAbsent())
			origin := fmt.Sprintf("%s/%d/%d", first.Topic, first.Partition, first.Offset)
			if m := s.waits(origin); m.ID != origin || m.From != origin || m.Chosen || m.Due != first.Timestamp.UnixMilli()+60_000 {
				s.Errorf("it waits as %+v", m)
			}
			if m := s.waits("a"); !m.Chosen || m.From != fmt.Sprintf("%s/%d/%d", named.Topic, named.Partition, named.Offset) || m.Payload == nil || string(m.Payload.Key) != "k" {
				s.Errorf("it waits as %+v", m)
			}
			s.expectOutcomes("a", client.OutcomeRefused)
			s.produce("gone", client.After(time.Minute), client.ID("b"))
			s.produce("", client.Cancel("b"))
			s.expectOutcomes("b", client.OutcomeCancelled)
			s.expectArrived(65*time.Second, "one", "two")
			for i, id := range []string{origin, "a"} {
				if r := s.record(i); header(r, client.HeaderDeliveredID) != id || header(r, "deliver-after") != "" {
					s.Errorf("%s has the headers %v", id, r.Headers)
				}
			}
			if key := s.record(1).Key; string(key) != "K" {
				s.Errorf("its key is %q", key)
			}
		}},
	}
}
