package clienttest

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
)

// A message is on its way shortly before it is due, and nothing can be done about it.
func TestServer_letsTooLateHappen(t *testing.T) {
	s := New(t)
	a, err := s.Admin().Schedule(t.Context(), client.ScheduleRequest{Topic: "orders.delay", ID: "a", DeliverAfter: "1m"})
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Minute - 50*time.Millisecond)
	_, err = s.Admin().Cancel(t.Context(), client.Name{Topic: "orders.delay", ID: "a"}, "")
	if p, ok := errors.AsType[*client.Problem](err); !ok || !errors.Is(err, client.ErrTooLate) || p.Seq != a.Seq || p.Outcome != nil {
		t.Errorf("%v", err)
	}
	b, err := s.Admin().Schedule(t.Context(), client.ScheduleRequest{Topic: "orders.delay", ID: "a", DeliverAfter: "1h", If: client.ConditionAbsent})
	if err != nil || b.Code != client.AnswerScheduled || b.Before != a.Seq {
		t.Errorf("%+v, %v", b, err)
	}
	if len(s.Delivered()) != 0 {
		t.Error("it was delivered early")
	}
	s.Advance(50 * time.Millisecond)
	if got := s.Delivered(); len(got) != 1 || !got[0].Timestamp.Equal(s.Now()) {
		t.Errorf("%d were delivered", len(got))
	}
}

func TestServer_delaysUntilTheTimeOnly(t *testing.T) {
	s := NewAt(t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, after := range []string{"3h", "1h", "2h"} {
		if _, err := s.Admin().Schedule(t.Context(), client.ScheduleRequest{Topic: "orders.delay", DeliverAfter: after, ExpiresAfter: "1m", Value: client.Text(after)}); err != nil {
			t.Fatal(err)
		}
	}
	s.Advance(24 * time.Hour) // past when each expires, but each had its turn
	var got string
	for _, r := range s.Delivered() {
		got += string(r.Value) + r.Timestamp.UTC().Format("@15:04 ")
	}
	if got != "1h@01:00 2h@02:00 3h@03:00 " {
		t.Error(got)
	}
}

func TestServer_refusesTargets(t *testing.T) {
	s := New(t)
	s.RefuseTarget("orders", "target-missing", "topic orders does not exist")
	s.Produce(&client.Record{Topic: "orders.delay", Value: []byte("a"), Headers: []client.Header{{Key: client.HeaderAfter, Value: []byte("1s")}, {Key: client.HeaderID, Value: []byte("a")}}})
	s.Advance(time.Second)
	letters := s.DeadLetters()
	if len(s.Delivered()) != 0 || len(letters) != 1 || letters[0].Code != "target-missing" || letters[0].Origin != "orders.delay/0/0" {
		t.Fatalf("%+v", letters)
	}
	life, err := s.Admin().Get(t.Context(), "orders.delay", "a")
	if err != nil || len(life.Outcomes) != 1 || life.Outcomes[0].Kind != client.OutcomeDeadLettered || life.Outcomes[0].Target != letters[0].Topic {
		t.Errorf("%+v, %v", life, err)
	}
	s.RefuseTarget("orders", "", "")
	if _, err := s.Admin().Replay(t.Context(), client.Position{Topic: letters[0].Topic}, client.ReplayRequest{}); err != nil {
		t.Error(err)
	}
	if got := s.Delivered(); len(got) != 1 || string(got[0].Value) != "a" {
		t.Errorf("%d were delivered", len(got))
	}
}

// Programs that want an address have one.
func TestServer_isAnAddress(t *testing.T) {
	s := New(t)
	node := httptest.NewServer(s)
	defer node.Close()
	admin, err := client.NewAdmin([]string{node.URL}, client.AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Schedule(t.Context(), client.ScheduleRequest{Topic: "orders.delay", ID: "a/b", DeliverAfter: "1h"}); err != nil {
		t.Error(err)
	}
	if life, err := s.Admin().Get(t.Context(), "orders.delay", "a/b"); err != nil || life.Message == nil {
		t.Errorf("%+v, %v", life, err)
	}
}
