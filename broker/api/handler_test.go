package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/bulk"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeNode answers what it is told to.
type fakeNode struct {
	status   broker.Status
	notReady error
	standing broker.Standing
	refusal  error
	replaced []string
	raised   int
	paused   []client.Pause
	resumed  []client.Pause
	silent   error // what Kafka's silence is called
	room     bool
	clock    broker.ClockReading
	desk     *query.Desk // nil: one of a leader whose schedule has one message
	orders   doneLog
	letters  someLetters
	steps    operationLog
}

func (n *fakeNode) Queries() *query.Desk {
	if n.desk == nil {
		return query.New(oneMessage{}, leads{})
	}
	return n.desk
}

// Leader is who the status says.
func (n *fakeNode) Leader() broker.Leader {
	l := broker.Leader{ID: n.status.Leader, Self: n.status.Leader == n.status.Node}
	for _, m := range n.status.Members {
		if m.ID == l.ID {
			l.API = m.API
		}
	}
	return l
}

func (n *fakeNode) Orders() *order.Desk {
	return order.New(order.Options{Config: config.Default(), Store: oneMessage{}, Log: &n.orders, Count: noCount{}, Begun: func() error { return nil }, Now: time.Now, Due: time.Now})
}

func (n *fakeNode) Places(_ context.Context, _ *query.Desk, kind string) (client.Places, error) {
	return client.Places{Index: 12, Places: []client.Place{{Name: "bills." + kind, Pending: 9007199254740993}, {Name: "orders." + kind}}}, n.refusal
}

func (n *fakeNode) Operations() *bulk.Desk {
	return bulk.New(bulk.Options{Store: oneOperation{}, Log: &n.steps, Queries: n.Queries(), Orders: n.Orders(), Letters: n.DeadLetters(), Count: noCount{}, Begun: func() error { return nil }, Now: time.Now, Due: time.Now, Logger: quiet()})
}

func (n *fakeNode) DeadLetters() *deadletter.Desk {
	return deadletter.New(deadletter.Options{Kafka: n.letters, Store: oneMessage{}, Topics: []string{"carillon.dead-letter", "orders.delay"}, Now: time.Now,
		TargetOf: func(topic string) string { return config.Default().Routes[0].Target(topic) }})
}

func (n *fakeNode) Status() broker.Status      { return n.status }
func (n *fakeNode) Ready() error               { return n.notReady }
func (n *fakeNode) Standing() broker.Standing  { return n.standing }
func (n *fakeNode) Clock() broker.ClockReading { return n.clock }
func (n *fakeNode) ReachKafka(context.Context) (broker.Reached, error) {
	return broker.Reached{Reached: true, Room: n.room, Brokers: []int32{1, 3}}, n.silent
}

func (n *fakeNode) Replace(_ context.Context, member string) error {
	n.replaced = append(n.replaced, member)
	return n.refusal
}

func (n *fakeNode) Explain(_ context.Context, topic, id string) (broker.Explanation, error) {
	return broker.Explanation{Topic: topic, ID: id, Node: "n1", Events: []broker.LifeEvent{}, Words: []string{"no message ever had this id"}}, n.refusal
}

func (n *fakeNode) Impossible(topic, _ string) string {
	if topic == "orders" {
		return "topic \"orders\" is no delay topic"
	}
	return ""
}

func (n *fakeNode) RaiseLevel(context.Context) (broker.LevelRaise, error) {
	n.raised++
	return broker.LevelRaise{LevelStatus: broker.LevelStatus{InForce: 2, Understood: 2}, Silent: []string{"n3"}}, n.refusal
}

func (n *fakeNode) Pause(_ context.Context, p client.Pause) (client.PauseChange, error) {
	n.paused = append(n.paused, p)
	return client.PauseChange{Changed: len(n.paused) == 1}, n.refusal
}

func (n *fakeNode) Resume(_ context.Context, p client.Pause) (client.PauseChange, error) {
	n.resumed = append(n.resumed, p)
	return client.PauseChange{Changed: true}, n.refusal
}

var _ Node = (*broker.Broker)(nil)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serveNode serves the node on loopback and returns a client of it.
func serveNode(t *testing.T, n *fakeNode) *Client {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics := broker.NewMetrics(registry)
	metrics.Accepted(7)
	metrics.Rejected(message.CodeMalformed, 2)
	registry.MustRegister(broker.NewCollector(n.Status))
	server := httptest.NewServer(NewHandler(n, registry, Anyone(), quiet()))
	t.Cleanup(server.Close)
	return NewClient(server.Listener.Addr().String())
}

func TestStatus_comesThroughWhole(t *testing.T) {
	lag := int64(3)
	want := broker.Status{
		Node: "n1", State: "leader", Leader: "n1", Term: 4, Pending: 5, OldestDue: 6, Lag: &lag,
		Parked: []string{"orders"}, Problems: []string{"kafka: away"},
		Routes: []string{"*.delay"}, MaxDelay: map[string]int64{"*.delay": 8},
		Targets:          &broker.TargetsStatus{Allow: []string{"*"}, Deny: []string{"__*"}},
		DeadLetterTopics: []string{"dead"},

		Level:   broker.LevelStatus{InForce: 1, Understood: 2},
		Members: []broker.MemberStatus{{ID: "n1", API: "127.0.0.1:7401", Voter: new(true), LastContact: 9}},
		Raft:    broker.RaftStatus{AppliedIndex: 10}, Storage: broker.StorageStatus{Segments: 11},
	}
	got, err := serveNode(t, &fakeNode{status: want}).Status(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestClock_comesThroughWhole(t *testing.T) {
	want := broker.ClockReading{Node: "n2", Cluster: "c", Micros: 1763832000123456}
	got, err := serveNode(t, &fakeNode{clock: want}).Clock(t.Context())
	if err != nil || got != want {
		t.Errorf("%+v and error %v, want %+v", got, err, want)
	}
}

func TestStanding_comesThroughWhole(t *testing.T) {
	want := broker.Standing{NodeID: "n2", ClusterName: "c", Incarnation: "x", Founders: map[string]string{"n2": "x"}}
	got, err := serveNode(t, &fakeNode{standing: want}).Standing(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestExplain_comesThroughWhole(t *testing.T) {
	want := broker.Explanation{Topic: "a&b.delay", ID: "ä ?", Node: "n1", Events: []broker.LifeEvent{}, Words: []string{"no message ever had this id"}}
	got, err := serveNode(t, &fakeNode{}).Explain(t.Context(), "a&b.delay", "ä ?")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// What nodes tell is what package client reads, in which numbers of 64 bits are texts.
func TestExplain_isToldInTheFormOfTheClient(t *testing.T) {
	const due = 1_900_000_000_000
	told := broker.Explanation{Topic: "orders.delay", ID: "order-7", Node: "n1", AppliedIndex: 1<<53 + 1, KnownSince: due, Words: []string{"a line"},
		Waiting: &broker.Waiting{Seq: 1<<53 + 1, Due: due, Target: "orders", Expires: due + 1, State: broker.StateWaiting},
		Events:  []broker.LifeEvent{{What: "delivered", Seq: 1<<53 + 1, By: 5, Due: due, At: due + 1, Target: "orders", Partition: new(int32(3)), Offset: new(int64(1<<53 + 1)), Late: new(int64(1))}},
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	var read client.Explanation
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(read)
	if diff := cmp.Diff(string(text), string(again)); diff != "" || err != nil {
		t.Errorf("%v (-told +read):\n%s", err, diff)
	}
	if !strings.Contains(string(text), `"applied_index":"9007199254740993"`) {
		t.Errorf("%s", text)
	}
}

func TestExplain_saysWhatIsMissing(t *testing.T) {
	for path, says := range map[string]string{"/v1/explain?id=i": "topic is missing: ask for /v1/explain?topic=TOPIC&id=ID", "/v1/explain?topic=orders.delay": "id is missing"} {
		if p := refusalOf(t, handlerOf(&fakeNode{}), "GET", path, ""); !strings.HasPrefix(p.Detail, says) {
			t.Errorf("%s: %s, want %s", path, p.Detail, says)
		}
	}
	for _, test := range []struct {
		node      *fakeNode
		topic, id string
		code      int
		says      string
	}{
		{&fakeNode{}, "", "i", http.StatusBadRequest, "topic is empty: give it a value"},
		{&fakeNode{}, "orders.delay", "", http.StatusBadRequest, "id is empty"},
		{&fakeNode{refusal: fmt.Errorf("%w: raise the level", broker.ErrNoIDs)}, "orders.delay", "i", http.StatusConflict, "ids are not served: raise the level"},
		{&fakeNode{refusal: errors.New("disk")}, "orders.delay", "i", http.StatusInternalServerError, "disk"},
	} {
		_, err := serveNode(t, test.node).Explain(t.Context(), test.topic, test.id)
		answer, ok := errors.AsType[*Error](err)
		if !ok || answer.Code != test.code || !strings.HasPrefix(answer.Message, test.says) {
			t.Errorf("%q of %q: %v, want %d %s", test.id, test.topic, err, test.code, test.says)
		}
	}
}

func TestReachKafka_givesTheReason(t *testing.T) {
	for _, room := range []bool{true, false} {
		reached, err := serveNode(t, &fakeNode{room: room}).ReachKafka(t.Context())
		if err != nil || !reflect.DeepEqual(reached, broker.Reached{Reached: true, Room: room, Brokers: []int32{1, 3}}) {
			t.Errorf("answer %+v, %v of a node whose room is %t", reached, err, room)
		}
	}
	_, err := serveNode(t, &fakeNode{silent: errors.New("list topics: no answer")}).ReachKafka(t.Context())
	answer, ok := errors.AsType[*Error](err)
	if !ok || answer.Code != http.StatusServiceUnavailable || answer.Message != "list topics: no answer" {
		t.Errorf("error %v, want status 503 and the node's words", err)
	}
}

func TestReady_givesTheReason(t *testing.T) {
	if err := serveNode(t, &fakeNode{}).Ready(t.Context()); err != nil {
		t.Error(err)
	}
	err := serveNode(t, &fakeNode{notReady: errors.New("candidate: no leader is known")}).Ready(t.Context())
	var answer *Error
	if !errors.As(err, &answer) || answer.Code != http.StatusServiceUnavailable || err.Error() != "candidate: no leader is known" {
		t.Errorf("got %v", err)
	}
}

func TestLive_evenWhenNotReady(t *testing.T) {
	c := serveNode(t, &fakeNode{notReady: errors.New("no")})
	if err := c.Live(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMetrics_showCountersAndStatus(t *testing.T) {
	c := serveNode(t, &fakeNode{status: broker.Status{State: "leader", Pending: 42, Term: 3, Level: broker.LevelStatus{InForce: 1, Understood: 2}}})
	answer, err := c.http.Get("http://" + c.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"carillon_feature_level 1", "carillon_feature_level_understood 2", "carillon_accepted_total 7", `carillon_rejected_total{code="malformed"} 2`, "carillon_pending 42", "carillon_raft_is_leader 1", "carillon_raft_term 3",
	} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("%s is missing in:\n%s", line, text)
		}
	}
}

func TestReplace_isPassedOnToTheLeaderOnce(t *testing.T) {
	leader := &fakeNode{status: broker.Status{Node: "n1", State: "leader", Leader: "n1"}}
	leaderAPI := serveNode(t, leader).address
	members := []broker.MemberStatus{{ID: "n1", API: leaderAPI}, {ID: "n2"}}
	follower := serveNode(t, &fakeNode{status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: members}})
	if err := follower.Replace(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"n3"}, leader.replaced); diff != "" {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}

	leader.refusal = errors.New("cannot replace member: n3: it answers")
	if err := follower.Replace(t.Context(), "n3"); err == nil || err.Error() != "cannot replace member: n3: it answers" {
		t.Errorf("a refusal comes back as %v", err)
	}

	leader.status = broker.Status{Node: "n1", State: "follower", Leader: "n1x", Members: []broker.MemberStatus{{ID: "n1x", API: leaderAPI}}}
	leader.replaced = nil
	if err := follower.Replace(t.Context(), "n3"); err == nil || !strings.Contains(err.Error(), "no leader is known") || !strings.Contains(err.Error(), "mount the same disks") || leader.replaced != nil {
		t.Errorf("a request that finds no leader gives %v", err)
	}
}

func TestReplace_sendsOneAskedWithoutAPlaceToAnotherMember(t *testing.T) {
	for _, state := range []string{"unborn", "replaced"} {
		members := []broker.MemberStatus{{ID: "n1"}, {ID: "n3"}}
		lost := serveNode(t, &fakeNode{status: broker.Status{Node: "n3", State: state, Members: members}})
		err := lost.Replace(t.Context(), "n3")
		if want := "n3 is " + state + ", it has no place in the group and knows no leader: ask another member, at its api address"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestReplace_saysWhereTheLeaderWasAsked(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	address := gone.Listener.Addr().String()
	gone.Close()
	members := []broker.MemberStatus{{ID: "n1", API: address}, {ID: "n2"}}
	follower := serveNode(t, &fakeNode{status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: members}})
	err := follower.Replace(t.Context(), "n3")
	if want := fmt.Sprintf("leader n1 does not answer at %q: correct its api address in cluster.members of n2, or ask", address); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReplace_refusesABodyThatIsNone(t *testing.T) {
	n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
	handler := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	for _, body := range []string{"", "{}", `{"member":""}`, `{"member":"n3","force":true}`, `{"member":"` + strings.Repeat("n", mostRequested) + `"}`} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/cluster/replace", strings.NewReader(body)))
		if want := map[bool]int{false: http.StatusBadRequest, true: http.StatusRequestEntityTooLarge}[len(body) > mostRequested]; answer.Code != want {
			t.Errorf("%.40q is answered with %d %s", body, answer.Code, answer.Body)
		}
	}
	if n.replaced != nil {
		t.Errorf("replaced %v", n.replaced)
	}
}

func TestHandler_refusesWebPagesOfOthers(t *testing.T) {
	for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}}
		request := httptest.NewRequest(http.MethodPost, "/v1/cluster/replace", strings.NewReader(`{"member":"n3"}`))
		request.Header.Set(header, value)
		answer := httptest.NewRecorder()
		NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet()).ServeHTTP(answer, request)
		if answer.Code != http.StatusForbidden || n.replaced != nil {
			t.Errorf("%s: answered with %d, replaced %v", header, answer.Code, n.replaced)
		}
		want := fmt.Sprintf(`"code":"forbidden","detail":"%s is \"%s\": a browser sent this for a web page of another origin, which may change nothing here; send it without a browser"`, header, value)
		if got := answer.Body.String(); !strings.Contains(got, want) || answer.Header().Get("Content-Type") != problemType {
			t.Errorf("%s: %s", answer.Header().Get("Content-Type"), got)
		}
	}
}

func TestHandler_namesWhatThereIsNot(t *testing.T) {
	for request, want := range map[string]struct {
		code        int
		allow, text string
	}{
		"GET /v2/status":               {http.StatusNotFound, "", "there is no GET /v2/status"},
		"PUT /v1/status":               {http.StatusMethodNotAllowed, "GET, HEAD", "/v1/status takes GET or HEAD, not PUT"},
		"POST /metrics":                {http.StatusMethodNotAllowed, "GET, HEAD", "/metrics takes GET or HEAD, not POST"},
		"GET /v1/cluster/replace":      {http.StatusMethodNotAllowed, "POST", "/v1/cluster/replace takes POST, not GET"},
		"PUT /v1/cluster/replaced":     {http.StatusNotFound, "", "there is no PUT /v1/cluster/replaced"},
		"GET /v1/messages/a.delay/b/c": {http.StatusNotFound, "", "there is no GET /v1/messages/a.delay/b/c: an id has its slashes as %2F"},
	} {
		method, path, _ := strings.Cut(request, " ")
		answer := httptest.NewRecorder()
		NewHandler(&fakeNode{}, prometheus.NewRegistry(), Anyone(), quiet()).ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		var p problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || p.Code != client.CodeBadRequest || answer.Code == http.StatusNotFound && (p.Field != "path" || p.Value != path) {
			t.Errorf("%s: code %q, field %q, value %q", request, p.Code, p.Field, p.Value)
		}
		if answer.Code != want.code || answer.Header().Get("Allow") != want.allow || !strings.Contains(answer.Body.String(), want.text) {
			t.Errorf("%s is answered with %d, allow %q, %s", request, answer.Code, answer.Header().Get("Allow"), answer.Body)
		}
	}
}

func TestServe_endsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, listener, NewHandler(&fakeNode{}, prometheus.NewRegistry(), Anyone(), quiet()), quiet())
	}()
	if err := NewClient(listener.Addr().String()).Ready(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := NewClient(listener.Addr().String()).Ready(t.Context()); err == nil {
		t.Error("it answers after the end")
	}
}
