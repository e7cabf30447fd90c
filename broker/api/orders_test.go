package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// send sends a request with headers, name and value in turns.
func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

func TestOrders_areCarriedOut(t *testing.T) {
	const at = "/v1/messages/orders.delay/order-7"
	const answer = `{"code":"%s","topic":"orders.delay","id":"order-7","seq":"9007199254740997"}`
	body := `{"deliver_after":"1h","value":{"json":{"a": 1}}}`
	for _, test := range []struct {
		method, path, body string
		headers            []string
		code               string
		verb               raftfsm.Verb
		condition          raftfsm.Condition
	}{
		{"POST", "/v1/messages", `{"topic":"orders.delay","id":"order-7","deliver_after":"1h"}`, nil, "scheduled", raftfsm.Schedule, raftfsm.Always},
		{"POST", "/v1/messages", `{"topic":"orders.delay","id":"order-7","deliver_after":"1h"}`, []string{"If-None-Match", "*"}, "scheduled", raftfsm.Schedule, raftfsm.Absent},
		{"PUT", at, body, nil, "scheduled", raftfsm.Schedule, raftfsm.Always},
		{"PUT", at, body, []string{"If-Match", "*"}, "scheduled", raftfsm.Schedule, raftfsm.Present},
		{"PUT", at, body, []string{"If-Match", `"42"`}, "scheduled", raftfsm.Schedule, raftfsm.Exactly},
		{"DELETE", at + "?reason=done", "", nil, "cancelled", raftfsm.Cancel, raftfsm.Always},
		{"DELETE", at, "", []string{"If-Match", `"42"`}, "cancelled", raftfsm.Cancel, raftfsm.Exactly},
		{"PATCH", at, `{"value":null}`, []string{"If-Match", `"9007199254740995"`}, "replaced", raftfsm.Change, raftfsm.Exactly},
		{"POST", at + "/now", "", nil, "replaced", raftfsm.Change, raftfsm.Exactly},
	} {
		n := &fakeNode{}
		got := send(NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet()), test.method, test.path, test.body, append(test.headers, "Content-Type", "application/json")...)
		if want := fmt.Sprintf(answer, test.code); got.Code != http.StatusOK || strings.TrimSpace(got.Body.String()) != want || got.Header().Get("ETag") != `"9007199254740997"` {
			t.Errorf("%s %s %v: %d %v %s", test.method, test.path, test.headers, got.Code, got.Header(), got.Body)
		}
		if len(n.orders.asked) != 1 || n.orders.asked[0].Verb != test.verb || n.orders.asked[0].If != test.condition || n.orders.asked[0].Entry.ID != "order-7" {
			t.Errorf("%s %s %v: asked %+v", test.method, test.path, test.headers, n.orders.asked)
		}
	}
}

// What means nothing is refused with a status, a code and a remedy, and nothing is done.
func TestOrders_areRefusedWithNothingDone(t *testing.T) {
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	const at = "/v1/messages/orders.delay/order-7"
	json1 := func(more string) string { return `{"topic":"orders.delay","deliver_after":"1h"` + more + `}` }
	for _, test := range []struct {
		what, method, path, body string
		headers                  []string
		status                   int
		code                     client.Code
		says                     string
	}{
		{"no body", "POST", "/v1/messages", "", nil, 400, client.CodeBadRequest, "request body is required"},
		{"no JSON", "POST", "/v1/messages", "deliver", nil, 400, client.CodeBadRequest, "not JSON"},
		{"Latin-1", "POST", "/v1/messages", json1(",\"value\":{\"text\":\"caf\xe9\"}"), nil, 400, client.CodeBadRequest, "not UTF-8: write bytes that are no text as base64"},
		{"half of it", "POST", "/v1/messages", `{"topic":`, nil, 400, client.CodeBadRequest, "unexpected EOF"},
		{"two values", "POST", "/v1/messages", "{} {}", nil, 400, client.CodeBadRequest, "send one"},
		{"a list", "POST", "/v1/messages", "[]", nil, 400, client.CodeBadRequest, "the body is a JSON array: send an object"},
		{"unknown field", "POST", "/v1/messages", json1(`,"deliver":"x"`), nil, 400, client.CodeBadRequest, `unknown field "deliver": leave it out`},
		{"unknown kind", "POST", "/v1/messages", json1(`,"value":{"xml":"x"}`), nil, 400, client.CodeBadRequest, `write {"text": "..."}`},
		{"value as text", "POST", "/v1/messages", json1(`,"value":"x"`), nil, 400, client.CodeBadRequest, `write {"text": "..."}`},
		{"number as time", "POST", "/v1/messages", `{"topic":"orders.delay","deliver_at":1900000000123}`, nil, 400, client.CodeBadRequest, "deliver_at is a JSON number: write a string"},
		{"seconds", "POST", "/v1/messages", `{"topic":"orders.delay","deliver_at":"1900000000"}`, nil, 400, client.CodeBadRequest, "looks like seconds: use epoch milliseconds"},
		{"no delay topic", "POST", "/v1/messages", `{"topic":"orders","deliver_after":"1h"}`, nil, 400, client.CodeBadRequest, "routes[].from"},
		{"denied target", "POST", "/v1/messages", json1(`,"deliver_to":"__consumer_offsets"`), nil, 400, client.CodeTargetNotAllowed, "targets.deny"},
		{"too large", "POST", "/v1/messages", json1(`,"value":{"text":"` + strings.Repeat("x", mostMessage) + `"}`), nil, 413, client.CodeTooLarge, "too large"},
		{"a form", "POST", "/v1/messages", json1(""), []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, client.CodeBadRequest, "say Content-Type: application/json"},
		{"a parameter", "POST", "/v1/messages?dry=true", json1(""), nil, 400, client.CodeBadRequest, `"dry" is no parameter`},
		{"query", "DELETE", at + "?reason=%zz", "", nil, 400, client.CodeBadRequest, "percent-encode"},
		{"another topic", "PUT", at, `{"topic":"bills.delay","deliver_after":"1h"}`, nil, 400, client.CodeBadRequest, "is not that of the path"},
		{"no ETag", "PUT", at, `{"deliver_after":"1h"}`, []string{"If-Match", "42"}, 400, client.CodeBadRequest, `such as "42" with its quotes`},
		{"weak ETag", "DELETE", at, "", []string{"If-Match", `W/"42"`}, 400, client.CodeBadRequest, "is no ETag of a message"},
		{"several ETags", "DELETE", at, "", []string{"If-Match", `"42", "43"`}, 400, client.CodeBadRequest, "is no ETag of a message"},
		{"both", "PUT", at, `{"deliver_after":"1h"}`, []string{"If-Match", `"42"`, "If-None-Match", "*"}, 400, client.CodeBadRequest, "give one of them"},
		{"none of some", "PUT", at, `{"deliver_after":"1h"}`, []string{"If-None-Match", `"42"`}, 400, client.CodeBadRequest, "is not *"},
		{"twice", "PUT", at, `{"deliver_after":"1h","if":"absent"}`, []string{"If-None-Match", "*"}, 400, client.CodeBadRequest, "give one of them"},
		{"two keys", "POST", "/v1/messages", json1(`,"idempotency_key":"a"`), []string{"Idempotency-Key", "b"}, 400, client.CodeBadRequest, "give one of them"},
		{"long key", "POST", "/v1/messages", json1(""), []string{"Idempotency-Key", strings.Repeat("k", 300)}, 400, client.CodeBadRequest, "use 256 at most"},
		{"condition without id", "POST", "/v1/messages", json1(""), []string{"If-None-Match", "*"}, 400, client.CodeBadRequest, "if \"absent\" needs"},
		{"empty batch", "POST", "/v1/batches", `{"messages":[]}`, nil, 400, client.CodeBadRequest, "send 1 to 1000"},
		{"large batch", "POST", "/v1/batches", `{"messages":[` + strings.Repeat("{},", 1000) + "{}]}", nil, 400, client.CodeBadRequest, "send 1 to 1000"},
	} {
		got := send(h, test.method, test.path, test.body, test.headers...)
		var p problem
		if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != test.status || p.Status != test.status || p.Code != test.code || !strings.Contains(p.Detail, test.says) || got.Header().Get("Content-Type") != problemType || p.Title == "" {
			t.Errorf("%s: %d %v %.300s", test.what, got.Code, got.Header(), got.Body)
		}
		named(t, test.method+" "+test.path, &p)
		if len(got.Body.String()) > 2000 {
			t.Errorf("%s: the problem has %d bytes", test.what, got.Body.Len())
		}
	}
	if len(n.orders.asked) != 0 {
		t.Errorf("asked for %+v", n.orders.asked)
	}
}

func TestBatch_answersForEachMessage(t *testing.T) {
	d := newDoor(t)
	token := d.create(access.Grant{Name: "anna", Role: access.Operator, Topics: []string{"orders.*"}, Targets: []string{"orders"}})
	body := `{"messages":[
		{"topic":"orders.delay","deliver_after":"1h"},
		{"topic":"orders.delay","deliver_after":"never"},
		{"topic":"bills.delay","deliver_after":"1h"},
		{"topic":"orders.delay","deliver_after":"1h","deliver_to":"parcels"},
		{"topic":"orders.delay","deliver_after":"1h","id":"a"},
		{"topic":"orders.delay","deliver_after":"1h","id":"a","if":"absent"}]}`
	got := send(d.handler(), "POST", "/v1/batches", body, "Authorization", "Bearer "+token)
	var answer client.BatchAnswer
	if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil || got.Code != http.StatusOK || len(answer.Answers) != 6 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	for i, want := range []client.Code{"", client.CodeBadRequest, client.CodeForbidden, client.CodeForbidden, client.CodeForbidden, ""} {
		item := answer.Answers[i]
		if want == "" && item.Answer == nil || want != "" && (item.Problem == nil || item.Problem.Code != want || item.Problem.Status != want.Status()) {
			t.Errorf("message %d: %+v %+v", i, item.Answer, item.Problem)
		}
	}
	if p := answer.Answers[2].Problem; p.Field != "topic" || p.Value != "bills.delay" {
		t.Errorf("of another topic: %+v", p)
	}
	if p := answer.Answers[3].Problem; p.Field != "deliver_to" || p.Value != "parcels" {
		t.Errorf("for another target: %+v", p)
	}
	if len(d.node.orders.asked) != 2 {
		t.Errorf("asked for %d", len(d.node.orders.asked))
	}
	if line := d.log.String(); !strings.Contains(line, `request="POST /v1/batches" status=200 messages=6 of="3 orders.delay to orders, 1 bills.delay to bills, 1 orders.delay to parcels" refused=4`) {
		t.Error(line)
	}
}
