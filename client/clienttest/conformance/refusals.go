package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
)

// A wrong is a request that is refused as a whole, with the field and the value that are at fault.
type wrong struct {
	request      string // method and path, in which TOPIC stands for that of the case
	body         string // likewise
	header       string // name: value
	field, value string
}

// refusals has the cases of what means nothing, or could be taken for two things.
func refusals() []Case {
	const schedules, at = "POST /v1/messages", "/v1/messages/TOPIC/a"
	return []Case{
		{"a body says one thing only", func(s *scene) {
			s.long("a")
			for _, w := range []wrong{
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","deliver_after":"2h"}`, "", "deliver_after", "2h"},
				{schedules, `{"topic":"TOPIC","Deliver_After":"1h"}`, "", "Deliver_After", "1h"},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","id":""}`, "", "id", ""},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","value":{"text":"\ud800"}}`, "", "value.text", `"\ud800"`},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","value":{"text":"a","text":"b"}}`, "", "value.text", "b"},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","key":{"Text":"a"}}`, "", "key.Text", "a"},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","headers":[{"key":"a"},{"key":"b","value":{"text":5}}]}`, "", "headers[1].value.text", "5"},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h"} {}`, "", "body", "{}"},
				{schedules, "", "", "body", ""},
				{schedules, "[]", "", "body", "[]"},
				{"POST /v1/batches", `{"messages":[{"topic":"TOPIC","deliver_after":"1h"},{},{},{"topic":"TOPIC","deliver_at":1900000000000}]}`, "", "messages[3].deliver_at", "1900000000000"},
				{"POST /v1/batches", `{"messages":[{"topic":"TOPIC","deliver_after":"1h"},{"delay":"1h"}]}`, "", "messages[1].delay", "1h"},
				{"POST /v1/batches", `{"messages":[null]}`, "", "messages[0]", "null"},
				{"PATCH " + at, `{"deliver_after":"1h","Reason":"x"}`, "", "Reason", "x"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC","Prefix":"x"},"reason":"r"}`, "", "filter.Prefix", "x"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC","from":1900000000000},"reason":"r"}`, "", "filter.from", "1900000000000"},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"shift":"1h","shift":"2h"}}`, "", "change.shift", "2h"},
			} {
				s.expectRefused(w)
			}
			if m := s.waits("a"); m.Due < s.ms(23*time.Hour) {
				s.Errorf("something was done: %+v", m)
			}
			if got := s.list(client.Filter{Topic: s.topic}); len(got) != 1 {
				s.Errorf("something was done: %q wait", got)
			}
		}},
		{"a request means something", func(s *scene) {
			s.long("a")
			for _, w := range []wrong{
				{"GET /v1/messages?topic=TOPIC&from=1900000000", "", "", "from", "1900000000"},
				{"GET /v1/count?topic=TOPIC&to=1900000000", "", "", "to", "1900000000"},
				{"GET /v1/histogram?topic=TOPIC&bounds=1900000000", "", "", "bounds", "1900000000"},
				{"GET /v1/histogram?topic=TOPIC&by=topic", "", "", "by", "topic"},
				{"GET /v1/dead-letters?from=1900000000", "", "", "from", "1900000000"},
				{"GET /v1/messages?topic=TOPIC&limit=0", "", "", "limit", "0"},
				{"GET /v1/messages?topic=TOPIC&due=5", "", "", "due", "5"},
				{"GET /v1/messages?topic=TOPIC&topic=b", "", "", "topic", "b"},
				{"GET /v1/messages?topic=TOPIC&state=asleep", "", "", "state", "asleep"},
				{"GET /v1/messages?topic=", "", "", "topic", ""},
				{"GET /v1/count?topic=TOPIC&prefix", "", "", "prefix", ""},
				{"GET /v1/messages/TOPIC/a?stale=", "", "", "stale", ""},
				{"GET /v1/count?topic=TOPIC", `{"prefix":"b"}`, "", "body", `{"prefix":"b"}`},
				{"DELETE " + at, `{"reason":"r"}`, "", "body", `{"reason":"r"}`},
				{"DELETE " + at + "?reason=", "", "", "reason", ""},
				{"POST " + at + "/now", `{"reason":"r"}`, "", "body", `{"reason":"r"}`},
				{"POST /v1/operations/1/stop", `{"reason":"r"}`, "", "body", `{"reason":"r"}`},
				{"GET /v1/dead-letters/carillon.dead-letter/0/-1", "", "", "offset", "-1"},
				{"GET /v1/dead-letters/carillon.dead-letter/-1/0", "", "", "partition", "-1"},
				{"POST /v1/dead-letters/carillon.dead-letter/0/-1/replay", "{}", "", "offset", "-1"},
				{"GET /v1/explain?topic=TOPIC", "", "", "id", ""},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h"}`, "Idempotency-Key: ", "Idempotency-Key", ""},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h"}`, "If-None-Match: ", "If-None-Match", ""},
				{schedules, `{"topic":"TOPIC","deliver_after":"P80000D"}`, "", "deliver_after", "P80000D"},
				{schedules, `{"topic":"TOPIC","deliver_after":"1h","deliver_to":"TOPIC"}`, "", "deliver_to", s.topic},
				{"POST /v1/batches", `{"messages":[]}`, "", "messages", "0"},
				{"DELETE " + at, "", "If-Match: 5", "If-Match", "5"},
				{"DELETE /v1/messages/TOPIC/..", "", "", "path", "/v1/messages/" + s.topic + "/.."},
				{"POST /v1/messages/TOPIC//now", "", "", "path", "/v1/messages/" + s.topic + "//now"},
				{"GET /v1/messages/TOPIC/.", "", "", "path", "/v1/messages/" + s.topic + "/."},
				{"DELETE " + at + "?dry=true", "", "", "dry", "true"},
				{"DELETE " + at + "?reason=a&reason=b", "", "", "reason", "b"},
				{schedules + "?reason=r", `{"topic":"TOPIC","deliver_after":"1h"}`, "", "reason", "r"},
				{"POST /v1/operations?dry_run=true", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"r"}`, "", "dry_run", "true"},
				{"POST /v1/topics/TOPIC/pause?why=why", `{"why":"why"}`, "", "why", "why"},
				{"GET /v1/count?topic=%ff", "", "", "query", "topic=%ff"},
				{"DELETE " + at, "", "If-None-Match: *", "If-None-Match", "*"},
				{"DELETE " + at, "", "Idempotency-Key: k", "Idempotency-Key", "k"},
				{"PATCH " + at, `{}`, "", "body", ""},
				{"PATCH " + at, `{"reason":"it is time","deliver_after":null}`, "", "body", ""},
				{"PATCH /v1/messages/TOPIC/nobody", `{}`, "", "body", ""},
				{"PATCH " + at, `{"deliver_after":"2h"}`, "If-None-Match: *", "If-None-Match", "*"},
				{"PATCH " + at, `{"deliver_after":"2h"}`, "Idempotency-Key: k", "Idempotency-Key", "k"},
				{"POST " + at + "/now", "", "If-None-Match: *", "If-None-Match", "*"},
				{"POST /v1/batches", `{"messages":[{"topic":"TOPIC","deliver_after":"1h"}]}`, "Idempotency-Key: k", "Idempotency-Key", "k"},
				{"POST /v1/batches", `{"messages":[{"topic":"TOPIC","deliver_after":"1h"}]}`, "If-None-Match: *", "If-None-Match", "*"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"r"}`, "If-Match: *", "If-Match", "*"},
				{"POST /v1/dead-letters/carillon.dead-letter/0/0/replay", `{}`, "Idempotency-Key: k", "Idempotency-Key", "k"},
				{"POST /v1/topics/TOPIC/pause", `{"why":"why"}`, "Idempotency-Key: k", "Idempotency-Key", "k"},
				{"DELETE " + at, "", "If-Match: ", "If-Match", ""},
				{"GET " + at, "", "If-Match: *", "If-Match", "*"},
				{"GET " + at, "", "Idempotency-Key: k", "Idempotency-Key", "k"},
				{"GET /v1/count?topic=TOPIC", "", "If-Match: *", "If-Match", "*"},
				{"GET //v1/messages", "", "", "path", "//v1/messages"},
				{"DELETE /v1/messages/TOPIC/%ff", "", "", "path", "/v1/messages/" + s.topic + "/%ff"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC","from":"1900000000"},"reason":"r"}`, "", "filter.from", "1900000000"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"states":["waiting"]},"reason":"r"}`, "", "filter", ""},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"to":"253402300799999"},"reason":"r"}`, "", "filter.to", "253402300799999"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"from":"100000000000"},"reason":"r"}`, "", "filter.from", "100000000000"},
				{"POST /v1/operations", `{"verb":"replay","filter":{"to":"253402300799999"},"reason":"r"}`, "", "filter.to", "253402300799999"},
				{"POST /v1/operations", `{"verb":"replay","filter":{"from":"100000000000"},"reason":"r"}`, "", "filter.from", "100000000000"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC","states":["asleep"]},"reason":"r"}`, "", "filter.states", "asleep"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"}}`, "", "reason", ""},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"nobody.reads"},"reason":"r"}`, "", "filter.topic", "nobody.reads"},
				{"POST /v1/operations", `{"verb":"replay","filter":{"topic":"nobody.reads"},"reason":"r"}`, "", "filter.topic", "nobody.reads"},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"deliver_to":"TOPIC"}}`, "", "change.deliver_to", s.topic},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"deliver_to":"a b"}}`, "", "change.deliver_to", "a b"},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"deliver_after":"P80000D"}}`, "", "change.deliver_after", "P80000D"},
				{"POST /v1/operations", `{"verb":"replay","filter":{"topic":"TOPIC"},"reason":"r","change":{"deliver_to":"TOPIC"}}`, "", "change.deliver_to", s.topic},
				{"POST /v1/operations", `{"verb":"now","filter":{"target":"TOPIC"},"reason":"r"}`, "", "filter.target", s.topic},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"shift":"0s"}}`, "", "change.shift", "0s"},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"shift":"soon"}}`, "", "change.shift", "soon"},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"shift":"1h","deliver_after":"1h"}}`, "", "change", ""},
				{"POST /v1/operations", `{"verb":"change","filter":{"topic":"TOPIC"},"reason":"r","change":{"deliver_at":"4000000000000","deliver_after":"1h"}}`, "", "change", ""},
				{"POST /v1/operations", `{"verb":"replay","filter":{"topic":"TOPIC"},"reason":"r","change":{"shift":"1h"}}`, "", "change.shift", "1h"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"r","change":{"shift":"1h"}}`, "", "change", ""},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"r","rate":-1}`, "", "rate", "-1"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"r","rate":2000000}`, "", "rate", "2000000"},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"  "}`, "", "reason", ""},
				{"POST /v1/operations", `{"verb":"cancel","filter":{"topic":"TOPIC"},"reason":"` + strings.Repeat("r", 501) + `"}`, "", "reason", strings.Repeat("r", 64) + "..."},
				{"GET /v1/operations/x", "", "", "operation", "x"},
				{"POST /v1/operations/0/stop", "", "", "operation", "0"},
				{"GET /v1/histogram?topic=TOPIC&bounds=" + strings.Repeat("1900000000000,", 1000) + "1900000000000", "", "", "bounds", "1001"},
				{"GET /v1/count?topic=TOPIC&prefix=a/b", "", "", "prefix", "a/b"},
				{"GET /v1/histogram?topic=TOPIC&prefix=a/b", "", "", "prefix", "a/b"},
				{schedules, `{"topic":"a b.delay","deliver_after":"1h"}`, "", "topic", "a b.delay"},
				{"DELETE /v1/messages/a%20b/a", "", "", "topic", "a b"},
				{"PATCH /v1/messages/a%20b/a", `{"deliver_after":"1h"}`, "", "topic", "a b"},
				{"POST /v1/messages/a%20b/a/now", "", "", "topic", "a b"},
				{"DELETE /v1/messages/TOPIC/", "", "", "path", "/v1/messages/" + s.topic + "/"},
				{"POST /v1/topics/TOPIC/pause", `{"who":"ann"}`, "", "why", ""},
				{"POST /v1/topics/nobody.reads/pause", `{"why":"why"}`, "", "topic", "nobody.reads"},
				{"POST /v1/targets/TOPIC/pause", `{"why":"why"}`, "", "target", s.topic},
			} {
				s.expectRefused(w)
			}
			_, err := s.Count(s.ctx, client.Filter{Topic: s.topic, From: 1_900_000_000})
			if p := s.refused("count from seconds", err, client.ErrBadRequest); p.Field != "from" {
				s.Errorf("the problem names %+v", p)
			}
			_, err = s.StartOperation(s.ctx, client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: s.topic, To: 1_900_000_000}, Reason: "r"})
			if p := s.refused("cancel up to seconds", err, client.ErrBadRequest); p.Field != "filter.to" {
				s.Errorf("the problem names %+v", p)
			}
			s.waits("a")
		}},
		{"a message may be too large", func(s *scene) {
			large := s.request("a", time.Hour)
			large.Value = client.Text(strings.Repeat("x", 5<<20))
			_, err := s.Schedule(s.ctx, large)
			s.refused("5 MiB", err, client.ErrTooLarge)
			s.world.Advance(time.Second) // the node lingers on a connection whose request it does not read to the end
		}},
		{"a refusal speaks of fields", func(s *scene) {
			for request, field := range map[string]string{
				`{"topic":"TOPIC"}`: "deliver_at",
				`{"topic":"TOPIC","deliver_after":"1h","if":"absent"}`:                                     "if",
				`{"topic":"TOPIC","deliver_after":"1h","expires_after":"1h","expires_at":"4000000000000"}`: "expires_after",
				`{"deliver_after":"1h"}`: "topic",
			} {
				var p client.Problem
				status := s.send("POST", "/v1/messages", strings.ReplaceAll(request, "TOPIC", s.topic), "", &p)
				if status != http.StatusBadRequest || p.Field != field || strings.Contains(p.Detail, "deliver-") || strings.Contains(p.Detail, "topic topic") {
					s.Errorf("%s: answered %d with %+v", request, status, p)
				}
			}
		}},
		{"a body is JSON in UTF-8", func(s *scene) {
			for kind, want := range map[string]int{
				"application/json": http.StatusOK, `application/json; charset="UTF-8"`: http.StatusOK, "application/json; charset=latin1": http.StatusUnsupportedMediaType,
				"text/plain": http.StatusUnsupportedMediaType, "application/x-www-form-urlencoded": http.StatusUnsupportedMediaType, "application/json; charset": http.StatusUnsupportedMediaType,
			} {
				var told struct{ Code client.Code }
				status := s.send("PUT", "/v1/messages/"+s.topic+"/a", `{"deliver_after":"1h"}`, "Content-Type: "+kind, &told)
				if status != want || want != http.StatusOK && told.Code != client.CodeBadRequest {
					s.Errorf("%s: answered %d with %s, want %d", kind, status, told.Code, want)
				}
			}
		}},
		{"what is no text is not sent as another one", func(s *scene) {
			const no = "order-\xe9"
			_, scheduled := s.Schedule(s.ctx, client.ScheduleRequest{Topic: s.topic, ID: no, DeliverAfter: "1h"})
			_, valued := s.Schedule(s.ctx, client.ScheduleRequest{Topic: s.topic, DeliverAfter: "1h", Value: client.Text(no)})
			_, batched := s.ScheduleBatch(s.ctx, []client.ScheduleRequest{{Topic: s.topic, DeliverAfter: "1h"}, {Topic: s.topic, DeliverAfter: "1h", Headers: []client.DataHeader{{Key: no}}}})
			_, started := s.StartOperation(s.ctx, client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Prefix: no}, Reason: "r"})
			_, counted := s.Count(s.ctx, client.Filter{Topic: s.topic, Prefix: no})
			_, cancelled := s.Cancel(s.ctx, s.name(no), "")
			var listed error
			for _, listed = range s.Messages(s.ctx, client.Filter{Topic: s.topic, Prefix: no}) {
			}
			for field, err := range map[string]error{"id": scheduled, "value.text": valued, "messages[1].headers[0].key": batched, "filter.prefix": started, "prefix": counted, "path": cancelled} {
				if p := s.refused(field, err, client.ErrBadRequest); p.Field != field || !strings.Contains(p.Detail, `order-\xe9" is not UTF-8`) {
					s.Errorf("%s: the problem names %+v", field, p)
				}
			}
			s.refused("list", listed, client.ErrBadRequest)
			if got := s.list(client.Filter{Topic: s.topic}); len(got) > 0 {
				s.Errorf("%q wait", got)
			}
			a, err := s.Schedule(s.ctx, client.ScheduleRequest{Topic: s.topic, ID: "a", DeliverAfter: "1h", Value: client.Bytes([]byte(no))})
			if m := s.waits("a"); err != nil || m.Seq != a.Seq || m.Payload == nil || string(m.Payload.Value) != no {
				s.Errorf("as bytes: %+v, %v", m, err)
			}
		}},
		{"whatever the id it can be asked for", func(s *scene) {
			for _, id := range []string{".", "..", "../..", "a/../b", "//", "a//b/", "./a", "%2E", "%", "a b", "?a=b", "#", "ü/\u00FC", "a+b", `"`, "api", "now"} {
				a := s.long(id)
				if m := s.waits(id); m.Seq != a.Seq || m.ID != id {
					s.Errorf("under %q waits %+v, want %d", id, m, a.Seq)
				}
				changed, err := s.Change(s.ctx, s.name(id), client.ChangeRequest{DeliverAfter: "48h"})
				if err != nil || changed.Before != a.Seq {
					s.Errorf("change %q: %+v, %v", id, changed, err)
				}
				if e, err := s.Explain(s.ctx, s.topic, id); err != nil || e.ID != id {
					s.Errorf("explain %q: %+v, %v", id, e, err)
				}
				if ended, err := s.Cancel(s.ctx, s.name(id), "done"); err != nil || ended.Seq != changed.Seq {
					s.Errorf("cancel %q: %+v, %v", id, ended, err)
				}
			}
			s.expectRefused(wrong{schedules, `{"topic":"TOPIC","deliver_after":"1h","id":"/"}`, "", "id", "/"})
			if got := s.list(client.Filter{Topic: s.topic}); len(got) > 0 {
				s.Errorf("%q wait still", got)
			}
		}},
	}
}

// expectRefused sends the request, which is to be a bad one.
func (s *scene) expectRefused(w wrong) {
	s.Helper()
	method, path, _ := strings.Cut(strings.ReplaceAll(w.request, "TOPIC", s.topic), " ")
	var p client.Problem
	answer := s.send(method, path, strings.ReplaceAll(w.body, "TOPIC", s.topic), w.header, &p)
	if answer != http.StatusBadRequest || p.Status != answer || p.Code != client.CodeBadRequest || p.Field != w.field || p.Value != w.value || p.Detail == "" {
		s.Errorf("%s %s %s: answered %d with %+v; want %d with field %q, value %q", w.request, w.header, w.body, answer, p, http.StatusBadRequest, w.field, w.value)
	}
}

// send sends a request as no Admin does, and returns the status of its answer.
func (s *scene) send(method, path, body, header string, into any) int {
	s.Helper()
	request, err := http.NewRequestWithContext(s.ctx, method, "http://carillon"+path, strings.NewReader(body))
	if err != nil {
		s.Fatalf("%v", err)
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		request.Header.Set(name, value)
	}
	answer, err := s.world.RoundTrip(request)
	if err != nil {
		s.Fatalf("%v", err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode
}
