package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// oneOperation is a schedule with the operation 1 on messages of orders.delay for orders, and with 2 on all.
type oneOperation struct{ oneMessage }

func (oneOperation) Bulks() []bulk.Operation {
	return []bulk.Operation{
		{ID: 2, What: `{"verb":"now","all":true,"reason":"all of it"}`, Who: "bert", State: bulk.Stopped, Ended: 9, Problem: "stopped by bert"},
		{ID: 1, What: `{"verb":"cancel","filter":{"topic":"orders.delay","target":"orders"},"reason":"r","matched":7}`, Who: "anna", UpperSeq: 9007199254740993,
			Started: 1000, State: bulk.Running, Counts: bulk.Counts{Done: 3, TooLate: 2, NotFound: 1}},
	}
}

func (oneOperation) RunningBulk(uint64) (bulk.Operation, bool) { return bulk.Operation{}, false }

func (oneOperation) Answered(name.Hash) (o outcomes.Outcome, known bool) { return o, false }

// An operationLog takes what starts and stops operations.
type operationLog struct{ asked []raftfsm.Command }

func (*operationLog) Room() error                   { return nil }
func (*operationLog) Barrier(context.Context) error { return nil }

func (l *operationLog) Propose(_ context.Context, command raftfsm.Command) *raftfsm.Proposal {
	l.asked = append(l.asked, command)
	p, answer := raftfsm.NewProposal(nil)
	answer(raftfsm.Result{Changed: true, Answers: [][]raftfsm.Answer{{{Code: raftfsm.Scheduled, Seq: 1}}}}, nil)
	return p
}

func TestOperations_areStartedToldAndStopped(t *testing.T) {
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	const told = `{"id":"1","verb":"cancel","state":"running","filter":{"topic":"orders.delay","target":"orders"},"reason":"r","who":"anna","upper_seq":"9007199254740993","started":"1000","matched":"7","within":"0","done":"3","too_late":"2","not_found":"1","failed":"0"}`
	const body = `{"verb":"cancel","filter":{"topic":"orders.delay","target":"orders"},"reason":"r","rate":10}`
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/operations", body, http.StatusAccepted, told},
		{"GET", "/v1/operations/1", "", http.StatusOK, told},
		{"GET", "/v1/operations", "", http.StatusOK, told + "]}"},
		{"GET", "/v1/operations?stale=true", "", http.StatusOK, told + "]}"},
		{"GET", "/v1/operations/1?stale=true", "", http.StatusOK, told},
		{"POST", "/v1/operations/1/stop?reason=enough", "", http.StatusOK, told},
		{"POST", "/v1/operations", `{"verb":"cancel","filter":{"topic":"orders.delay"},"dry_run":true}`, http.StatusAccepted, `"matched":"9","within":"2"`},
	} {
		var once []string
		if test.body != "" {
			once = []string{"Idempotency-Key", "k"}
		}
		got := send(h, test.method, test.path, test.body, once...)
		if got.Code != test.status || !strings.Contains(got.Body.String(), test.want) {
			t.Errorf("%s %s: %d %s", test.method, test.path, got.Code, got.Body)
		}
	}
	if len(n.steps.asked) != 2 {
		t.Fatalf("asked %+v", n.steps.asked)
	}
	if start := n.steps.asked[0].(raftfsm.StartBulk); start.Who != anonymous || start.Once == (raftfsm.Once{}) || !strings.Contains(start.What, `"rate":10`) {
		t.Errorf("started %+v", start)
	}
	if stop := n.steps.asked[1].(raftfsm.StopBulk); stop.ID != 1 || stop.Problem != "stopped by anonymous: enough" {
		t.Errorf("stopped %+v", stop)
	}
}

func TestOperations_sayWhatIsWrongWithARequest(t *testing.T) {
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	for _, test := range []struct {
		method, path, body string
		status             int
		code               client.Code
		says               string
	}{
		{"POST", "/v1/operations", "", 400, client.CodeBadRequest, "request body is required"},
		{"POST", "/v1/operations", `{"verb":"cancel","reason":"r"}`, 400, client.CodeBadRequest, `say "all": true`},
		{"POST", "/v1/operations", `{"verb":"erase","all":true,"reason":"r"}`, 400, client.CodeBadRequest, "write cancel, change, now or replay"},
		{"POST", "/v1/operations", `{"verb":"cancel","all":true}`, 400, client.CodeBadRequest, "say why"},
		{"POST", "/v1/operations", `{"verb":"cancel","all":true,"reason":"r","rate":-1}`, 400, client.CodeBadRequest, "1 to 1000000"},
		{"POST", "/v1/operations", `{"verb":"cancel","filter":{"from":1900000000},"reason":"r"}`, 400, client.CodeBadRequest, "filter.from is a JSON number: write a number within a string"},
		{"POST", "/v1/operations", `{"verb":"cancel","filter":{"topic":"orders.delay","from":"1900000000"},"reason":"r"}`, 400, client.CodeBadRequest, `filter.from "1900000000" is before March 1973`},
		{"POST", "/v1/operations", `{"verb":"cancel","filter":{"topics":"x"},"reason":"r"}`, 400, client.CodeBadRequest, `unknown field "topics"`},
		{"POST", "/v1/operations", `{"verb":"change","all":true,"reason":"r","change":{"deliver_at":"1900000000"}}`, 400, client.CodeBadRequest, "looks like seconds"},
		{"GET", "/v1/operations/x", "", 400, client.CodeBadRequest, "is no id of an operation"},
		{"GET", "/v1/operations/3", "", 404, client.CodeNotFound, "more than a day ago"},
		{"GET", "/v1/operations/3?stale=true", "", 404, client.CodeNotFound, "may be behind"},
		{"POST", "/v1/operations/1/stop?stale=true", "", 400, client.CodeBadRequest, `"stale" is no parameter`},
		{"POST", "/v1/operations/3/stop", "", 404, client.CodeNotFound, "more than a day ago"},
		{"GET", "/v1/operations?state=running", "", 400, client.CodeBadRequest, `"state" is no parameter`},
	} {
		got := send(h, test.method, test.path, test.body)
		var p problem
		if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != test.status || p.Code != test.code || !strings.Contains(p.Detail, test.says) || got.Header().Get("Content-Type") != problemType {
			t.Errorf("%s %s %s: %d %.300s", test.method, test.path, test.body, got.Code, got.Body)
		}
		named(t, test.method+" "+test.path, &p)
	}
	if len(n.steps.asked) != 0 {
		t.Errorf("asked %+v", n.steps.asked)
	}
}

// A token for some topics and targets starts and sees operations on these alone, and moves nothing elsewhere.
func TestOperations_keepToWhatATokenIsFor(t *testing.T) {
	d := newDoor(t)
	token := d.create(access.Grant{Name: "anna", Role: access.Operator, Topics: []string{"orders.*"}, Targets: []string{"orders"}})
	for body, want := range map[string]int{
		`{"verb":"cancel","filter":{"topic":"orders.delay","target":"orders"},"reason":"r"}`:                                   http.StatusAccepted,
		`{"verb":"cancel","filter":{"topic":"orders.delay"},"reason":"r"}`:                                                     http.StatusForbidden,
		`{"verb":"cancel","filter":{"target":"orders"},"reason":"r"}`:                                                          http.StatusForbidden,
		`{"verb":"cancel","all":true,"reason":"r"}`:                                                                            http.StatusForbidden,
		`{"verb":"cancel","filter":{"topic":"orders.delay"},"dry_run":true}`:                                                   http.StatusForbidden,
		`{"verb":"change","filter":{"topic":"orders.delay","target":"orders"},"reason":"r","change":{"deliver_to":"parcels"}}`: http.StatusForbidden,
		`{"verb":"change","filter":{"topic":"orders.delay","target":"orders"},"reason":"r","change":{"deliver_to":"orders"}}`:  http.StatusAccepted,

		`{"verb":"replay","filter":{"topic":"orders.delay","target":"orders"},"reason":"r"}`:                                   http.StatusAccepted,
		`{"verb":"replay","filter":{"topic":"orders.delay","target":"orders"},"dry_run":true}`:                                 http.StatusAccepted,
		`{"verb":"replay","filter":{"topic":"orders.delay"},"reason":"r"}`:                                                     http.StatusForbidden,
		`{"verb":"replay","filter":{"target":"orders","code":"malformed"},"reason":"r"}`:                                       http.StatusForbidden,
		`{"verb":"replay","filter":{"code":"malformed"},"dry_run":true}`:                                                       http.StatusForbidden,
		`{"verb":"replay","all":true,"reason":"r"}`:                                                                            http.StatusForbidden,
		`{"verb":"replay","filter":{"topic":"orders.delay","target":"orders"},"reason":"r","change":{"deliver_to":"parcels"}}`: http.StatusForbidden,
		`{"verb":"replay","filter":{"topic":"orders.delay","target":"parcels"},"reason":"r","change":{"deliver_to":"orders"}}`: http.StatusForbidden,
	} {
		if got := send(d.handler(), "POST", "/v1/operations", body, "Authorization", "Bearer "+token); got.Code != want {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
	list := send(d.handler(), "GET", "/v1/operations", "", "Authorization", "Bearer "+token)
	if got := list.Body.String(); list.Code != http.StatusOK || strings.Contains(got, `"id":"2"`) || !strings.Contains(got, `"id":"1"`) {
		t.Errorf("%d %s", list.Code, got)
	}
	for _, path := range []string{"GET /v1/operations/2", "POST /v1/operations/2/stop"} {
		method, path, _ := strings.Cut(path, " ")
		if got := send(d.handler(), method, path, "", "Authorization", "Bearer "+token); got.Code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
		}
	}
	if log := d.log.String(); !strings.Contains(log, "reason=r") || !strings.Contains(log, "verb=cancel") {
		t.Errorf("logged %s", log)
	}
}
