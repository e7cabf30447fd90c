package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// oneMessage is a schedule with the message order-7 of orders.delay.
type oneMessage struct{}

func (oneMessage) ClusterID() [16]byte { return [16]byte{1} }

func (oneMessage) listed() storage.Listed {
	m := message.Message{ID: "order-7", Origin: message.Origin{Topic: "orders.delay", Partition: 1, Offset: 9007199254740993}, Value: []byte("a parcel")}
	e := m.Entry(1_900_000_000_000, "orders", storage.LevelThree)
	return storage.Listed{Item: storage.Item{Ref: storage.Ref{Due: e.Due, Seq: 9007199254740995}, Target: e.Target, Topic: e.Topic, ID: e.ID, Size: len(e.Body)}, Standing: storage.Waiting, Body: e.Body}
}

// An unnamedMessage is a schedule in which one message waits whose producer gave it no id.
type unnamedMessage struct{ oneMessage }

func (s unnamedMessage) List(_ context.Context, q storage.ListQuery) (storage.Page, error) {
	m := message.Message{Origin: message.Origin{Topic: "orders.delay", Partition: 1, Offset: 7}, Value: []byte("a parcel")}
	e := m.Entry(1_900_000_000_000, "orders", storage.LevelThree)
	page := storage.Page{Moment: storage.Moment{Index: 12, Pending: 1}, Done: true}
	if q.Keep(&page.Moment, &e) {
		item := storage.Item{Ref: storage.Ref{Due: e.Due, Seq: 5}, Target: e.Target, Topic: e.Topic, Size: len(e.Body)}
		page.Items = append(page.Items, storage.Listed{Item: item, Standing: storage.Waiting, Body: e.Body})
	}
	return page, nil
}

func (s oneMessage) List(_ context.Context, q storage.ListQuery) (storage.Page, error) {
	listed := s.listed()
	page := storage.Page{Moment: storage.Moment{Index: 12, Pending: 1}, Done: true}
	if q.Keep(&page.Moment, &storage.Entry{Due: listed.Due, Target: listed.Target, Topic: listed.Topic, ID: listed.ID}) {
		page.Items = append(page.Items, listed)
	}
	return page, nil
}

func (s oneMessage) Get(_ context.Context, topic, id string) (storage.Known, error) {
	known := storage.Known{Moment: storage.Moment{Index: 12, IDsOpen: true}}
	if topic == "orders.delay" && id == "order-7" || topic == "{topic}" { // as the test of all routes asks
		listed := s.listed()
		known.Message = &listed
	}
	return known, nil
}

func (oneMessage) Tally(_ context.Context, q storage.TallyQuery) (storage.Tally, error) {
	t := storage.Tally{Moment: storage.Moment{Index: 12, Pending: 10}, Groups: map[storage.Group]storage.Figure{}, Unseen: 3}
	if g, counted := q.Sort(&t.Moment, &storage.Entry{Due: 1900000000000, Target: "orders", Topic: "orders.delay", ID: "order-7"}); counted {
		t.Groups[g] = storage.Figure{Count: 9, Within: 2}
	}
	return t, nil
}

func (oneMessage) Level() storage.Level                        { return storage.LevelFour }
func (oneMessage) IDsOpen() bool                               { return true }
func (oneMessage) Answered(name.Hash) (outcomes.Outcome, bool) { return outcomes.Outcome{}, false }
func (oneMessage) State() storage.State                        { return storage.State{} }

// A doneLog does what is asked of it.
type doneLog struct{ asked []raftfsm.Operation }

func (*doneLog) Room() error                   { return nil }
func (*doneLog) Barrier(context.Context) error { return nil }

func (l *doneLog) Propose(_ context.Context, command raftfsm.Command) *raftfsm.Proposal {
	operations := command.(raftfsm.Operate).Operations
	l.asked = append(l.asked, operations...)
	var answers []raftfsm.Answer
	for _, o := range operations {
		code := map[raftfsm.Verb]raftfsm.Code{raftfsm.Schedule: raftfsm.Scheduled, raftfsm.Cancel: raftfsm.WasCancelled, raftfsm.Change: raftfsm.Superseded}[o.Verb]
		answers = append(answers, raftfsm.Answer{Code: code, Seq: 9007199254740997})
	}
	p, answer := raftfsm.NewProposal(nil)
	answer(raftfsm.Result{Answers: [][]raftfsm.Answer{answers}}, nil)
	return p
}

type noCount struct{}

func (noCount) Accepted(int)         {}
func (noCount) Answered(string, int) {}

// leads is the log of a leader, follows that of a node which n2 leads.
type leads struct{}

func (leads) Barrier(context.Context) error { return nil }
func (leads) Leader() string                { return "" }

type follows struct{}

func (follows) Barrier(context.Context) error {
	return fmt.Errorf("barrier: %w", raftfsm.ErrNotLeader)
}
func (follows) Leader() string { return "n2" }

func askMessages(d *door, token, path string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", path, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	answer := httptest.NewRecorder()
	d.handler().ServeHTTP(answer, request)
	return answer
}

func TestMessages_areTold(t *testing.T) {
	d := newDoor(t)
	viewer := d.create(access.Grant{Name: "anna", Role: access.Viewer})
	reader := d.create(access.Grant{Name: "bert", Role: access.Viewer, ReadPayload: true})
	const told = `{"topic":"orders.delay","id":"order-7","chosen":true,"seq":"9007199254740995","due":"1900000000000","target":"orders","state":"waiting","from":"orders.delay/1/9007199254740993","size":`
	const payload = `"payload":{"key":null,"value":"YSBwYXJjZWw=","headers":[]}`
	for _, path := range []string{"/v1/messages", "/v1/messages?topic=orders.delay&prefix=order-&target=orders&from=1800000000000&limit=1", "/v1/messages/orders.delay/order-7"} {
		for token, reads := range map[string]bool{viewer: false, reader: true} {
			answer := askMessages(d, token, path)
			if text := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(text, told) || strings.Contains(text, payload) != reads || strings.Contains(text, `"payload"`) != reads {
				t.Errorf("%s, payload %v: %d %s", path, reads, answer.Code, text)
			}
		}
	}
	if answer := askMessages(d, viewer, "/v1/messages?prefix=bill-"); answer.Code != http.StatusOK || strings.TrimSpace(answer.Body.String()) != `{"index":"12","pending":"1","messages":[]}` {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// Whatever tells of a message leaves its payload out, unless the token has read-payload: also a stream, and what is
// found without an id.
func TestMessages_tellPayloadsToThoseWhoMayReadThem(t *testing.T) {
	d := newDoor(t)
	d.node.desk = query.New(unnamedMessage{}, leads{})
	tokens := map[string]bool{
		d.create(access.Grant{Name: "anna", Role: access.Viewer}):                                                  false,
		d.create(access.Grant{Name: "olga", Role: access.Operator}):                                                false,
		d.create(access.Grant{Name: "ada", Role: access.Admin}):                                                    false,
		d.create(access.Grant{Name: "bert", Role: access.Viewer, ReadPayload: true}):                               true,
		d.create(access.Grant{Name: "cora", Role: access.Viewer, ReadPayload: true, Topics: []string{"orders.*"}}): true,
	}
	for _, accept := range []string{"application/json", ndjsonType} {
		for _, path := range []string{"/v1/messages?topic=orders.delay", "/v1/messages?topic=orders.delay&stale=true", "/v1/messages/orders.delay/orders.delay%2F1%2F7"} {
			for token, reads := range tokens {
				request := httptest.NewRequest("GET", path, nil)
				request.Header.Set("Authorization", "Bearer "+token)
				request.Header.Set("Accept", accept)
				answer := httptest.NewRecorder()
				d.handler().ServeHTTP(answer, request)
				text := answer.Body.String()
				if answer.Code != http.StatusOK || !strings.Contains(text, `"id":"orders.delay/1/7"`) || strings.Contains(text, `"payload"`) != reads || strings.Contains(text, "YSBwYXJjZWw=") != reads {
					t.Errorf("%s as %s, payload %v: %d %s", path, accept, reads, answer.Code, text)
				}
			}
		}
	}
}

func TestHistogram_isTold(t *testing.T) {
	d := newDoor(t)
	viewer := d.create(access.Grant{Name: "anna", Role: access.Viewer})
	answer := askMessages(d, viewer, "/v1/histogram?topic=orders.delay&bounds=1800000000000,2000000000000&by=target")
	want := `{"index":"12","pending":"10","exact":false,"buckets":[{"from":"1800000000000","to":"2000000000000","target":"orders","count":"9","within":"2"}],"unseen":"3"}`
	if answer.Code != http.StatusOK || strings.TrimSpace(answer.Body.String()) != want {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	for query, says := range map[string]string{"bounds=x": "epoch milliseconds, with commas", "bounds=1800000000": `bounds "1800000000" is before March 1973`, "by=topic": `by "topic" is not target`, "limit=5": `"limit" is no parameter`} {
		if answer := askMessages(d, viewer, "/v1/histogram?"+query); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), CodeBadRequest) || !strings.Contains(answer.Body.String(), strings.ReplaceAll(says, `"`, `\"`)) {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
}

func TestMessages_areRefusedWithACode(t *testing.T) {
	d := newDoor(t)
	viewer := d.create(access.Grant{Name: "anna", Role: access.Viewer})
	narrow := d.create(access.Grant{Name: "cora", Role: access.Viewer, Topics: []string{"orders.*"}})
	check := func(token, path string, status int, code, says string) {
		t.Helper()
		answer := askMessages(d, token, path)
		var p problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code != status || string(p.Code) != code || !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
		named(t, path, &p)
	}
	check(viewer, "/v1/messages?limit=0", http.StatusBadRequest, CodeBadRequest, `limit "0" is not from 1 to 1000`)
	check(viewer, "/v1/messages?limit=many", http.StatusBadRequest, CodeBadRequest, `limit is "many": it is a whole number of 64 bits at most`)
	check(viewer, "/v1/messages?due=5", http.StatusBadRequest, CodeBadRequest, `"due" is no parameter`)
	check(viewer, "/v1/messages?topic=a&topic=b", http.StatusBadRequest, CodeBadRequest, `topic "b" is there beside "a"`)
	check(viewer, "/v1/messages?state=asleep", http.StatusBadRequest, CodeBadRequest, `state is "asleep": expected value to be one of "waiting, parked`)
	check(viewer, "/v1/messages?from=1800000000", http.StatusBadRequest, CodeBadRequest, `from "1800000000" is before March 1973: write epoch milliseconds`)
	check(viewer, "/v1/count?to=1800000000", http.StatusBadRequest, CodeBadRequest, `to "1800000000" is before March 1973: write epoch milliseconds`)
	check(viewer, "/v1/messages?cursor=x", http.StatusBadRequest, CodeBadRequest, "begin without one")
	check(viewer, "/v1/messages/orders.delay/order-8", http.StatusNotFound, CodeNotFound, `"order-8"`)
	check(viewer, "/v1/messages/orders/order-8", http.StatusNotFound, CodeNotFound, `topic "orders" is no delay topic`)
	check(viewer, "/v1/messages/orders.delay/orders.delay%2F1%2F5", http.StatusNotFound, CodeNotFound, "no message orders.delay/1/5 is pending")
	check(narrow, "/v1/messages", http.StatusForbidden, CodeForbidden, "does not reach so far")
	check(narrow, "/v1/messages?topic=bills.delay", http.StatusForbidden, CodeForbidden, "does not reach so far")
	check(narrow, "/v1/messages/bills.delay/order-7", http.StatusForbidden, CodeForbidden, "does not reach so far")
	d.node.desk = query.New(oneMessage{}, follows{})
	check(viewer, "/v1/messages", http.StatusServiceUnavailable, CodeNotLeader, "ask n2")
	check(viewer, "/v1/messages/orders.delay/order-7", http.StatusServiceUnavailable, CodeNotLeader, "ask n2")
}

// A client asks for ids with slashes and blanks in them.
func TestClient_asksForMessages(t *testing.T) {
	d := newDoor(t)
	server := httptest.NewServer(d.handler())
	defer server.Close()
	client := Caller{Token: d.create(access.Grant{Name: "anna", Role: access.Viewer})}.Client(server.Listener.Addr().String())
	page, err := client.List(t.Context(), url.Values{"topic": {"orders.delay"}})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Seq != 9007199254740995 {
		t.Errorf("%+v, %v", page, err)
	}
	if known, err := client.Message(t.Context(), "orders.delay", "order-7", ""); err != nil || !strings.Contains(string(known), `"id":"order-7"`) {
		t.Errorf("%s, %v", known, err)
	}
	for _, id := range []string{"order 8", "a/b", "a//b", "..", "a/../b", "%2F", "?x"} {
		_, err := client.Message(t.Context(), "orders.delay", id, "")
		if answer, ok := errors.AsType[*Error](err); !ok || answer.Problem != CodeNotFound || !strings.Contains(answer.Message, fmt.Sprintf("%q", id)) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A token for some targets reads what is listed of these, and no list has others.
func TestMessages_tellPayloadsOfTheTargetsThatATokenIsFor(t *testing.T) {
	d := newDoor(t)
	narrow := d.create(access.Grant{Name: "dora", Role: access.Viewer, ReadPayload: true, Topics: []string{"orders.*"}, Targets: []string{"orders"}})
	blind := d.create(access.Grant{Name: "emil", Role: access.Viewer, Targets: []string{"orders"}})
	for _, test := range []struct {
		token, path string
		status      int
		reads       bool
	}{
		{narrow, "/v1/messages?topic=orders.delay&target=orders", http.StatusOK, true},
		{blind, "/v1/messages?topic=orders.delay&target=orders", http.StatusOK, false},
		{narrow, "/v1/messages?topic=orders.delay&target=parcels", http.StatusForbidden, false},
		{narrow, "/v1/messages?topic=orders.delay", http.StatusForbidden, false},
		{narrow, "/v1/explain?topic=orders.delay&id=order-7", http.StatusForbidden, false},
		{narrow, "/v1/explain?topic=orders.delay&id=order-7&target=orders", http.StatusBadRequest, false},
		{narrow, "/v1/messages/orders.delay/order-7", http.StatusForbidden, false}, // for whatever target it turns out to be
	} {
		for _, accept := range []string{"application/json", ndjsonType} {
			request := httptest.NewRequest("GET", test.path, nil)
			request.Header.Set("Authorization", "Bearer "+test.token)
			request.Header.Set("Accept", accept)
			answer := httptest.NewRecorder()
			d.handler().ServeHTTP(answer, request)
			if answer.Code != test.status || strings.Contains(answer.Body.String(), `"value":"YSBwYXJjZWw="`) != test.reads {
				t.Errorf("%s as %s: %d %s", test.path, accept, answer.Code, answer.Body)
			}
		}
	}
}
