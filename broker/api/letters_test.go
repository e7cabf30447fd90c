package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/replayed"
)

// someLetters are two partitions, of which the first has a dead letter at offset 7, a foreign record
// behind it, and nothing before offset 7 any more.
type someLetters struct{ err error }

func (s someLetters) Partitions(_ context.Context, topics []string, _ int64) (all []deadletter.Partition, err error) {
	for i, topic := range topics[:1] {
		id := [16]byte{byte(i + 1)}
		all = append(all, deadletter.Partition{Topic: topic, TopicID: id, First: 7, Next: 9}, deadletter.Partition{Topic: topic, TopicID: id, Number: 1})
	}
	return all, s.err
}

func (s someLetters) Read(_ context.Context, spans []deadletter.Span, _ int) ([]deadletter.Stretch, error) {
	m := message.Message{ID: "order-7", Origin: message.Origin{Topic: "orders.delay", Partition: 1, Offset: 5}, Value: []byte("a parcel"),
		Headers: []message.Header{{Key: "deliver-at", Value: []byte("soon")}, {Key: "deliver-id", Value: []byte("order-7")}, {Key: "lang", Value: []byte("de")}}}
	dead := m.AsDeadLetter(message.Problem{Code: message.CodeMalformed, Message: "deliver-at is no time"}, 0)
	stretches := make([]deadletter.Stretch, len(spans))
	for i, span := range spans {
		stretches[i].Whole = true
		for _, r := range []deadletter.Record{{Offset: 7, Time: 1800000001000, Value: dead.Value, Headers: dead.Headers}, {Offset: 8, Time: 1800000001001, Value: []byte("mine")}} {
			if r.Offset >= span.From && r.Offset < span.To {
				stretches[i].Records = append(stretches[i].Records, r)
			}
		}
	}
	return stretches, s.err
}

func (oneMessage) Replayed(_ replayed.Partition, offset int64) bool { return offset == 8 }

func TestLetters_areToldAndReplayed(t *testing.T) {
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	const letter = `{"topic":"carillon.dead-letter","partition":0,"offset":"7","code":"malformed","detail":"deliver-at is no time","target":"orders","origin":"orders.delay/1/5","delay_topic":"orders.delay","id":"order-7","time":"1800000001000"`
	const foreign = `{"topic":"carillon.dead-letter","partition":0,"offset":"8","code":"","detail":"","origin":"","time":"1800000001001","size":4,"replayed":true,"foreign":true}`
	list := send(h, "GET", "/v1/dead-letters", "")
	if got := strings.TrimSpace(list.Body.String()); list.Code != http.StatusOK || !strings.HasPrefix(got, `{"dead_letters":[`+foreign+`,`+letter) {
		t.Errorf("%d %s", list.Code, got)
	}
	for query, want := range map[string]int{"?limit=1": 1, "?code=malformed&topic=orders.delay&target=orders": 1, "?code=refused": 0, "?from=1800000001001": 1, "?to=1800000001001": 1, "?stale=true": 2} {
		var page client.DeadLetterPage
		got := send(h, "GET", "/v1/dead-letters"+query, "")
		if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil || len(page.DeadLetters) != want {
			t.Errorf("%s: %d %s, %v", query, got.Code, got.Body, err)
		}
	}
	one := send(h, "GET", "/v1/dead-letters/carillon.dead-letter/0/7", "")
	if got := one.Body.String(); one.Code != http.StatusOK || !strings.HasPrefix(got, letter) || !strings.Contains(got, `"payload":{"key":null,"value":"YSBwYXJjZWw=","headers":[{"key":"deliver-at"`) {
		t.Errorf("%d %s", one.Code, got)
	}
	if stale := send(h, "GET", "/v1/dead-letters/carillon.dead-letter/0/7?stale=true", ""); stale.Body.String() != one.Body.String() {
		t.Errorf("%d %s", stale.Code, stale.Body)
	}
	done := send(h, "POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", `{"deliver_after":"1h","deliver_to":"parcels","again":true,"reason":"mended"}`)
	if want := `{"code":"scheduled","topic":"orders.delay","id":"order-7","seq":"9007199254740997"}`; done.Code != http.StatusOK || strings.TrimSpace(done.Body.String()) != want {
		t.Errorf("%d %s", done.Code, done.Body)
	}
	want := raftfsm.Replay{At: replayed.Partition{TopicID: [16]byte{1}}, Offset: 7, First: 7, Again: true}
	if asked := n.orders.asked; len(asked) != 1 || *asked[0].Replay != want || asked[0].If != raftfsm.Absent || asked[0].Entry.Target != "parcels" || asked[0].Entry.ID != "order-7" {
		t.Errorf("asked %+v", n.orders.asked)
	}
}

func TestLetters_sayWhatIsWrongWithARequest(t *testing.T) {
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	const at = "/v1/dead-letters/carillon.dead-letter/0/"
	for _, test := range []struct {
		method, path, body string
		status             int
		code               client.Code
		says               string
	}{
		{"GET", "/v1/dead-letters/orders/0/7", "", http.StatusNotFound, client.CodeNotFound, `no dead-letter topic: "orders": the configuration names carillon.dead-letter`},
		{"GET", at + "6", "", http.StatusNotFound, client.CodeNotFound, "gone, by the retention"},
		{"GET", at + "9", "", http.StatusNotFound, client.CodeNotFound, "the last record of carillon.dead-letter/0 is before offset 9"},
		{"GET", "/v1/dead-letters/carillon.dead-letter/2/7", "", http.StatusNotFound, client.CodeNotFound, "none of number 2"},
		{"GET", "/v1/dead-letters/carillon.dead-letter/0/9223372036854775808", "", http.StatusBadRequest, client.CodeBadRequest, `offset is "9223372036854775808": write the number as an answer tells it`},
		{"GET", "/v1/dead-letters/carillon.dead-letter/x/7", "", http.StatusBadRequest, client.CodeBadRequest, "partition"},
		{"GET", at + "99999999999999999999", "", http.StatusBadRequest, client.CodeBadRequest, "offset"},
		{"GET", "/v1/dead-letters?limit=0", "", http.StatusBadRequest, client.CodeBadRequest, `limit "0" is not from 1 to 1000`},
		{"GET", "/v1/dead-letters?limit=2000", "", http.StatusBadRequest, client.CodeBadRequest, `limit "2000" is not from 1`},
		{"GET", "/v1/dead-letters?cursor=x", "", http.StatusBadRequest, client.CodeBadRequest, "begin without one"},
		{"GET", "/v1/dead-letters?prefix=x", "", http.StatusBadRequest, client.CodeBadRequest, "prefix"},
		{"GET", "/v1/dead-letters?from=1800000000000&to=1800000000000", "", http.StatusBadRequest, client.CodeBadRequest, "give a later end"},
		{"GET", "/v1/dead-letters?to=1800000000", "", http.StatusBadRequest, client.CodeBadRequest, `to "1800000000" is before March 1973`},
		{"GET", "/v1/dead-letters?from=yesterday", "", http.StatusBadRequest, client.CodeBadRequest, "epoch milliseconds"},
		{"POST", at + "8/replay", "{}", http.StatusBadRequest, client.CodeBadRequest, "carillon.dead-letter/0/8 was put there by somebody else"},
		{"POST", at + "6/replay", "{}", http.StatusNotFound, client.CodeNotFound, "gone, by the retention"},
		{"POST", at + "7/replay", `{"deliver_at":"soon"}`, http.StatusBadRequest, client.CodeBadRequest, `deliver_at "soon" is not a time`},
		{"POST", at + "7/replay", `{"deliver_to":"__secret"}`, http.StatusBadRequest, client.CodeTargetNotAllowed, "__secret"},
		{"POST", at + "7/replay", `{"deliver_to":"orders.delay"}`, http.StatusBadRequest, client.CodeBadRequest, "is a delay topic"},
		{"POST", at + "7/replay", `{"to":"parcels"}`, http.StatusBadRequest, client.CodeBadRequest, `unknown field "to"`},
		{"POST", at + "7/replay", `[]`, http.StatusBadRequest, client.CodeBadRequest, "send an object"},
	} {
		got := send(h, test.method, test.path, test.body, "Content-Type", "application/json")
		var p problem
		if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil {
			t.Fatal(err, got.Body)
		}
		named(t, test.method+" "+test.path, &p)
		if got.Code != test.status || p.Code != test.code || !strings.Contains(p.Detail, test.says) {
			t.Errorf("%s %s %s: %d %s", test.method, test.path, test.body, got.Code, got.Body)
		}
	}
	if len(n.orders.asked) > 0 {
		t.Errorf("asked %+v", n.orders.asked)
	}
	n.letters.err = errors.New("no leader")
	got := send(h, "GET", "/v1/dead-letters", "")
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// Who may see a dead letter need not be one who may read it, or put it to another target.
func TestLetters_areForWhoMaySeeThem(t *testing.T) {
	d := newDoor(t)
	viewer := d.create(access.Grant{Name: "anna", Role: access.Viewer, Topics: []string{"orders.*"}, Targets: []string{"orders"}})
	operator := d.create(access.Grant{Name: "bert", Role: access.Operator, Topics: []string{"orders.*"}, Targets: []string{"orders"}})
	other := d.create(access.Grant{Name: "mallory", Role: access.Operator, Topics: []string{"orders.*"}, Targets: []string{"parcels"}})
	for _, test := range []struct {
		method, path, body, token string
		status                    int
	}{
		{"GET", "/v1/dead-letters/carillon.dead-letter/0/7", "", viewer, http.StatusOK},
		{"GET", "/v1/dead-letters/carillon.dead-letter/0/8", "", viewer, http.StatusForbidden}, // of nobody knows what
		{"GET", "/v1/dead-letters", "", viewer, http.StatusForbidden},
		{"GET", "/v1/dead-letters?topic=orders.delay&target=orders", "", viewer, http.StatusOK},
		{"POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", "{}", viewer, http.StatusForbidden},
		{"POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", `{"deliver_to":"parcels"}`, operator, http.StatusForbidden},
		{"GET", "/v1/dead-letters/carillon.dead-letter/0/7", "", other, http.StatusForbidden},
		{"POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", "{}", other, http.StatusForbidden},
		{"POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", `{"deliver_to":"parcels"}`, other, http.StatusForbidden}, // it was for orders
		{"POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", "{}", operator, http.StatusOK},
	} {
		got := send(d.handler(), test.method, test.path, test.body, "Authorization", "Bearer "+test.token, "Content-Type", "application/json")
		if got.Code != test.status || strings.Contains(got.Body.String(), `"payload"`) {
			t.Errorf("%s %s %s: %d %s", test.method, test.path, test.body, got.Code, got.Body)
		}
	}
	for token, want := range map[string]string{
		other:    `does not reach so far: it is for delay topics [\"orders.*\"] and targets [\"parcels\"] (none named: all)","error":`, // and not what it is of
		operator: `"field":"deliver_to","value":"parcels"`,
	} {
		got := send(d.handler(), "POST", "/v1/dead-letters/carillon.dead-letter/0/7/replay", `{"deliver_to":"parcels"}`, "Authorization", "Bearer "+token, "Content-Type", "application/json")
		if got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%d %s, want %s", got.Code, got.Body, want)
		}
	}
	if len(d.node.orders.asked) != 1 {
		t.Errorf("asked %+v", d.node.orders.asked)
	}
	if want := `topic=orders.delay to=orders`; !strings.Contains(d.log.String(), want) {
		t.Errorf("the log does not have %s:\n%s", want, &d.log)
	}
}
