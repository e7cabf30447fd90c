package api

import (
	"errors"
	"github.com/carillonmq/carillon/client"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/access"
)

func TestPause_isPassedOnToTheLeader(t *testing.T) {
	leader := &fakeNode{status: broker.Status{Node: "n1", State: "leader", Leader: "n1"}}
	members := []broker.MemberStatus{{ID: "n1", API: serveNode(t, leader).address}, {ID: "n2"}}
	follower := serveNode(t, &fakeNode{status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: members}})
	topic := client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Who: "ann", Why: "stock taking"}
	target := client.Pause{Kind: client.PauseTarget, Name: "orders"}
	for _, want := range []bool{true, false} {
		if got, err := follower.Pause(t.Context(), topic); err != nil || got.Changed != want {
			t.Errorf("paused: %+v, error %v", got, err)
		}
	}
	if got, err := follower.Resume(t.Context(), target); err != nil || !got.Changed {
		t.Errorf("resumed: %+v, error %v", got, err)
	}
	target.Who = "anonymous"
	if want := []client.Pause{topic, topic}; !slices.Equal(leader.paused, want) || !slices.Equal(leader.resumed, []client.Pause{target}) {
		t.Errorf("the leader is told %+v and %+v", leader.paused, leader.resumed)
	}
	leader.refusal = errors.New(`cannot pause or resume: topic "orders": no route has it`)
	if _, err := follower.Pause(t.Context(), topic); err == nil || err.Error() != leader.refusal.Error() {
		t.Errorf("a refusal comes back as %v", err)
	}
}

// Who shows a token is who the token says, and may pause what it is for.
func TestPause_isByWhoeverShowsTheToken(t *testing.T) {
	ask := func(grant access.Grant, path, body string) (*fakeNode, int) {
		d := newDoor(t)
		token := d.create(grant)
		request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens}, quiet()).ServeHTTP(answer, request)
		return d.node, answer.Code
	}
	orders := access.Grant{Name: "ann", Role: access.Operator, Topics: []string{"orders*"}}
	n, code := ask(orders, "/v1/topics/orders.delay/pause", `{"who": "bob", "why": "why"}`)
	if code != http.StatusOK || len(n.paused) != 1 || n.paused[0].Who != "ann" {
		t.Errorf("answered %d, the leader is told %+v", code, n.paused)
	}
	for path, grant := range map[string]access.Grant{
		"/v1/topics/bills.delay/pause":   orders,
		"/v1/targets/orders/resume":      orders, // messages of other topics go there
		"/v1/topics/orders.delay/resume": {Name: "cyd", Role: access.Viewer},
	} {
		if n, code := ask(grant, path, "{}"); code != http.StatusForbidden || len(n.paused)+len(n.resumed) > 0 {
			t.Errorf("%s by %s is answered with %d", path, grant.Name, code)
		}
	}
	for body, want := range map[string]int{"": http.StatusOK, `{"name": "x"}`: http.StatusBadRequest, "2": http.StatusBadRequest} {
		if _, code := ask(orders, "/v1/topics/orders.delay/resume", body); code != want {
			t.Errorf("body %q is answered with %d, want %d", body, code, want)
		}
	}
}

// A token sees the places that it is for.
func TestPlaces_areThoseOfTheToken(t *testing.T) {
	d := newDoor(t)
	for _, test := range []struct {
		grant access.Grant
		path  string
		want  string
	}{
		{access.Grant{Name: "anna", Role: access.Viewer}, "/v1/topics", `{"index":"12","places":[{"name":"bills.topic","pending":"9007199254740993","within":"0"},{"name":"orders.topic","pending":"0","within":"0"}]}`},
		{access.Grant{Name: "bert", Role: access.Viewer, Topics: []string{"orders.*"}}, "/v1/topics", `{"index":"12","places":[{"name":"orders.topic","pending":"0","within":"0"}]}`},
		{access.Grant{Name: "bert", Role: access.Viewer, Topics: []string{"orders.*"}}, "/v1/targets", `{"index":"12","places":[]}`},
		{access.Grant{Name: "cyd", Role: access.Viewer, Targets: []string{"orders.*"}}, "/v1/targets?stale=true", `{"index":"12","places":[{"name":"orders.target","pending":"0","within":"0"}]}`},
	} {
		if got := askMessages(d, d.create(test.grant), test.path); strings.TrimSpace(got.Body.String()) != test.want {
			t.Errorf("%s to %+v: %d %s", test.path, test.grant, got.Code, got.Body)
		}
	}
}
