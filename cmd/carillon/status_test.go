package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
)

func TestStatus_showsTheNodeAndWhatTheLeaderKnows(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	lag := int64(12)
	members := []broker.MemberStatus{{ID: "n1", API: "a:1", Voter: new(true)}, {ID: "n2", API: "b:1", Voter: new(true)}, {ID: "n3", API: "c:1", Voter: new(false)}}
	node := broker.Status{Node: "n2", State: "follower", Leader: "n1", Term: 7, Pending: 4, Members: members, Problems: []string{"disk: full"}}
	leader := broker.Status{
		Node: "n1", State: "leader", Leader: "n1", Term: 7, Pending: 5, OldestDue: now.UnixMilli() + 90_000, Lag: &lag,
		Parked: []string{"orders", "bills"}, Problems: []string{"kafka: away"},
		Members: []broker.MemberStatus{members[0], {ID: "n2", API: "b:1", Voter: new(true), LastContact: now.UnixMilli() - 40}, members[2]},
	}
	for _, test := range []struct {
		what   string
		leader broker.Status
		want   string
	}{
		{"the leader answers", leader, `
node        n2, follower
leader      n1, term 7
pending     5
oldest due  2030-03-17T17:48:10.000Z, in 1m30s
lag         12 records to read
parked      orders, bills
problem     disk: full
problem     n1: kafka: away

member  api  votes  last heard by the leader
n1      a:1  true   leads
n2      b:1  true   40ms ago
n3      c:1  false  never
`},
		{"the leader does not answer", node, `
node     n2, follower
leader   n1, term 7
pending  4
lag      known to the leader only, whose status cannot be had here
parked   known to the leader only, whose status cannot be had here
problem  disk: full

member  api  votes  last heard by the leader
n1      a:1  true   leads
n2      b:1  true   unknown
n3      c:1  false  unknown
`},
		{"the leader does not know yet", broker.Status{Node: "n1", State: "leader", Leader: "n1", Term: 7, Members: members}, `
node     n2, follower
leader   n1, term 7
pending  0
lag      not known yet
parked   not known yet
problem  disk: full

member  api  votes  last heard by the leader
n1      a:1  true   leads
n2      b:1  true   never
n3      c:1  false  never
`},
	} {
		var out strings.Builder
		if err := printStatus(&out, node, test.leader, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
}

func TestStatus_showsTheFeatureLevel(t *testing.T) {
	for want, level := range map[string]broker.LevelStatus{
		"level    2\npending": {InForce: 2, Understood: 2},
		"level    1; this node understands 2: run `carillon clust":                        {InForce: 1, Understood: 2},
		"level    unknown: this node has applied nothing of a cluster's log yet\npending": {Understood: 2},
		"term 0\npending": {}, // of a node from before there were levels
	} {
		var out strings.Builder
		if err := printStatus(&out, broker.Status{Node: "n1", Level: level}, broker.Status{}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
}

func TestStatus_namesTheFirstOfManyParkedTargets(t *testing.T) {
	leader := broker.Status{Node: "n1", Leader: "n1", Parked: make([]string, 3000)}
	for i := range leader.Parked {
		leader.Parked[i] = fmt.Sprintf("t%04d", i)
	}
	var out strings.Builder
	if err := printStatus(&out, leader, leader, time.Time{}); err != nil {
		t.Fatal(err)
	}
	want := "\nparked   3000: t0000, t0001, t0002, t0003, t0004, t0005, t0006, t0007, t0008, t0009 and 2990 more\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("want %q in:\n%s", want, out.String())
	}
}

func TestStatus_ofANodeWithoutAGroupShowsNoVotes(t *testing.T) {
	node := broker.Status{
		Node: "n1", State: "unborn", NotReady: "unborn: no answer from n2",
		Members: []broker.MemberStatus{{ID: "n1", API: "a:1"}, {ID: "n2", API: "b:1"}},
	}
	want := `node       n1, unborn
leader     none, term 0
not ready  unborn: no answer from n2
pending    0
lag        unknown without a leader
parked     unknown without a leader

member  api  votes    last heard by the leader
n1      a:1  unknown  unknown
n2      b:1  unknown  unknown
`
	var out strings.Builder
	if err := printStatus(&out, node, node, time.Now()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestStatus_ofAFollowerHasWhatTheLeaderKnows(t *testing.T) {
	lag := int64(12)
	node := broker.Status{Node: "n2", Leader: "n1", Pending: 4, Problems: []string{"disk: full"}}
	leader := broker.Status{Node: "n1", Leader: "n1", Pending: 5, Lag: &lag, Parked: []string{"orders"}, Problems: []string{"kafka: away"}}
	want := broker.Status{
		Node: "n2", Leader: "n1", Pending: 4, Lag: &lag, Parked: []string{"orders"},
		Problems: []string{"disk: full", "n1: kafka: away"},
	}
	if diff := cmp.Diff(want, withLeader(node, leader)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(node, withLeader(node, node)); diff != "" {
		t.Errorf("the leader does not answer (-want +got):\n%s", diff)
	}
}

func TestStatus_ofAnotherVersionIsNotCalledSilence(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"node": "n1", "routes": [{}]}`) }))
	defer node.Close()
	address := node.Listener.Addr().String()
	_, err := api.NewClient(address).Status(t.Context())
	want := "what answers at " + address + " is no node, or one of another version of carillon, use that: "
	if err = (nodes{}).explain(address, err); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestStatus_ofVeryManyTargetsIsReadWhole(t *testing.T) {
	padding := 5 << 20
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"node": "n1", "parked": [%s"orders"]}`, strings.Repeat(" ", padding))
	}))
	defer node.Close()
	address := node.Listener.Addr().String()
	if status, err := api.NewClient(address).Status(t.Context()); err != nil || len(status.Parked) != 1 {
		t.Errorf("got %v, %v", status.Parked, err)
	}
	padding = 32 << 20
	_, err := api.NewClient(address).Status(t.Context())
	want := "ask " + address + ": the answer is longer than 33554432 bytes: read http://" + address + "/v1/status by another program, such as curl"
	if err = (nodes{}).explain(address, err); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Whoever kills a container that is unhealthy asks for this: a node that is not ready serves.
func TestStatus_livesWhileItIsNotReady(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"leader: Kafka has not answered for 1m0s"}`)
		}
	}))
	for flag, want := range map[string]int{"--live": exitDone, "--ready": exitFailed} {
		var out strings.Builder
		if code := run(t.Context(), []string{"status", flag, "--api", node.URL}, strings.NewReader(""), &out, &out); code != want {
			t.Errorf("%s: exit %d, printed %s", flag, code, out.String())
		}
	}
	secret := httptest.NewTLSServer(http.NotFoundHandler())
	defer secret.Close()
	at := secret.Listener.Addr().String()
	for flag, want := range map[string]int{"--live": exitDone, "--ready": exitFailed} {
		if code := run(t.Context(), []string{"status", flag, "--api", at}, strings.NewReader(""), io.Discard, io.Discard); code != want {
			t.Errorf("%s of a node that speaks TLS: exit %d", flag, code)
		}
	}
	node.Close()
	if code := run(t.Context(), []string{"status", "--live", "--api", node.URL}, strings.NewReader(""), io.Discard, io.Discard); code != exitFailed {
		t.Errorf("nobody is there: exit %d", code)
	}
}
