package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

func TestRaise_isPassedOnToTheLeaderOnce(t *testing.T) {
	leader := &fakeNode{status: broker.Status{Node: "n1", State: "leader", Leader: "n1"}}
	members := []broker.MemberStatus{{ID: "n1", API: serveNode(t, leader).address}, {ID: "n2"}}
	follower := serveNode(t, &fakeNode{status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: members}})
	want := broker.LevelRaise{LevelStatus: broker.LevelStatus{InForce: 2, Understood: 2}, Silent: []string{"n3"}}
	if got, err := follower.RaiseLevel(t.Context()); err != nil || !cmp.Equal(got, want) || leader.raised != 1 {
		t.Errorf("level %+v, error %v, raised %d times; want %+v, once", got, err, leader.raised, want)
	}

	leader.refusal = errors.New("cannot raise the feature level to 2: member n3 runs a program that understands level 1 only: upgrade it")
	if _, err := follower.RaiseLevel(t.Context()); err == nil || err.Error() != leader.refusal.Error() {
		t.Errorf("a refusal comes back as %v", err)
	}
}

// In the middle of an upgrade the leader, or the node asked, may be of the program before.
func TestRaise_saysWhoIsTooOld(t *testing.T) {
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers{slog.New(slog.DiscardHandler)}.refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	}))
	defer old.Close()
	address := old.Listener.Addr().String()
	members := []broker.MemberStatus{{ID: "n1", API: address}, {ID: "n2"}}
	follower := serveNode(t, &fakeNode{status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: members}})
	want := "the program of the node at " + follower.address + " is from before there were feature levels: upgrade it, then raise again"
	if _, err := follower.RaiseLevel(t.Context()); err == nil || err.Error() != want {
		t.Errorf("a leader that is too old: %v, want %s", err, want)
	}
	if _, err := NewClient(address).RaiseLevel(t.Context()); err == nil || err.Error() != strings.Replace(want, follower.address, address, 1) {
		t.Errorf("a node that is too old: %v, want %s", err, want)
	}
}

func TestRaise_refusesABodyThatIsNone(t *testing.T) {
	for body, want := range map[string]int{
		"": http.StatusOK, "{}": http.StatusOK, `{"level":3}`: http.StatusBadRequest, "2": http.StatusBadRequest,
	} {
		n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
		answer := httptest.NewRecorder()
		NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet()).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, raisePath, strings.NewReader(body)))
		if answer.Code != want || n.raised != map[int]int{http.StatusOK: 1}[want] {
			t.Errorf("%q is answered with %d %s, raised %d times", body, answer.Code, answer.Body, n.raised)
		}
	}
}

// What may have been done is not answered as what was not: it would be asked for once more.
func TestNode_isToldToBeInDoubt(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, raftfsm.ErrNotLeader} { // the second of half a replacement
		n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}, refusal: fmt.Errorf("carry out: %w: %w", raftfsm.ErrInDoubt, cause)}
		for path, body := range map[string]string{
			replacePath: `{"member":"n3"}`, raisePath: "{}", "/v1/topics/orders.delay/pause": `{"why":"why"}`, "/v1/targets/orders/resume": "{}",
		} {
			answer := send(handlerOf(n), "POST", path, body)
			var told client.Problem
			if err := json.Unmarshal(answer.Body.Bytes(), &told); err != nil || answer.Code != http.StatusGatewayTimeout || told.Code != client.CodeInDoubt || answer.Header().Get("Retry-After") != "" {
				t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
			}
		}
	}
}
