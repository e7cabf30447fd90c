package broker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
)

func TestExplanation_tellsALifeInWords(t *testing.T) {
	const due = 1_900_000_000_000
	e := Explanation{Topic: "orders.delay", Waiting: &Waiting{Seq: 48, Due: due, Target: "orders", State: StatePaused, Expires: due + 1000}}
	for _, o := range []outcomes.Outcome{
		{Kind: outcomes.Delivered, Seq: 41, Due: due, At: due + 12, Target: "orders", Partition: 3, Offset: 17},
		{Kind: outcomes.Delivered, Seq: 42, Due: due, At: due, Target: "orders", Partition: 3, Offset: -1},
		{Kind: outcomes.DeadLettered, Seq: 43, Due: due, At: due + 1, Target: "dead", Partition: 0, Offset: 5},
		{Kind: outcomes.Expired, Seq: 44, Due: due, At: due + 2, Target: "orders"},
		{Kind: outcomes.Cancelled, Seq: 45, Due: due, At: due - 1, Target: "orders"},
		{Kind: outcomes.Replaced, Seq: 46, By: 47, Due: due, At: due - 1, Target: "orders"},
		{Kind: outcomes.Refused, Due: due, At: due - 1, Target: "orders"},
		{Kind: outcomes.RefusedRecord, Due: due, At: due - 1, Target: "orders", Partition: 3, Offset: 0},
	} {
		e.Events = append(e.Events, lifeEvent(o))
	}
	const at = "2030-03-17T17:46:40.000Z"
	want := []string{
		"message 41, due " + at + ", was delivered to orders/3/17 at 2030-03-17T17:46:40.012Z, 12ms late",
		"message 42, due " + at + ", was delivered to orders/3 at " + at + ", 0s late",
		"message 43, due " + at + ", could not be delivered: it became a dead letter in dead/0/5 at 2030-03-17T17:46:40.001Z",
		"message 44, due " + at + ", expired at 2030-03-17T17:46:40.002Z: it was not delivered",
		"message 45, due " + at + " for orders, was cancelled at 2030-03-17T17:46:39.999Z",
		"message 46, due " + at + " for orders, was replaced by message 47 at 2030-03-17T17:46:39.999Z",
		"a record had no effect at 2030-03-17T17:46:39.999Z, since its condition did not hold",
		"the record orders.delay/3/0 had no effect at 2030-03-17T17:46:39.999Z, since its condition did not hold",
		"message 48, due " + at + " for orders, waits, while the target orders is paused, by anna since " + at + ": repairs, and expires at 2030-03-17T17:46:41.000Z",
	}
	pauses := []pause.Pause{{Kind: pause.Topic, Name: "bills.delay"}, {Kind: pause.Target, Name: "orders", Who: "anna", Why: "repairs", Since: due}}
	if diff := cmp.Diff(want, e.words(pauses)); diff != "" {
		t.Error(diff)
	}
}

// A message from before its topic was known is held by no pause of it, so none is told of.
func TestExplanation_tellsOfPausesThatHoldTheMessage(t *testing.T) {
	s, err := storage.Open(storage.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.RaiseLevel(storage.LevelThree)
	s.Accept([]storage.Entry{{Due: 50, Target: "orders"}, {Due: 50, Target: "orders", Topic: "orders.delay", ID: "new"}})
	if _, err := s.OpenIDs([]storage.Named{{Ref: storage.Ref{Due: 50, Seq: 1}, Target: "orders", Topic: "orders.delay", ID: "old"}}, 2); err != nil {
		t.Fatal(err)
	}
	s.Pause(pause.Pause{Kind: pause.Topic, Name: "orders.delay", Who: "anna"})
	s.Accept([]storage.Entry{{Due: 500, Target: "orders", Topic: "orders.delay", ID: "expires", Expires: 600}})
	for _, want := range []string{StatePaused, StateExpired} {
		found, _, err := s.Lookup("orders.delay", "expires")
		if w := waiting(s, found); err != nil || w.State != want {
			t.Errorf("at %d: %s, %v, want %s", s.Time(), w.State, err, want)
		}
		s.SetTime(s.Time() + 600)
	}
	s.Accept([]storage.Entry{{Due: 90, Target: "bills", Topic: "bills.delay", ID: "out", Expires: 5000}})
	s.ChangeClaim(storage.ClaimChange{Through: 100})
	s.SetTime(5000)
	for id, want := range map[string]string{"expires": "it will not be delivered", "out": "it will not be delivered, unless a try was on its way by then"} {
		topic := map[string]string{"expires": "orders.delay", "out": "bills.delay"}[id]
		found, _, err := s.Lookup(topic, id)
		if words := waiting(s, found).words(nil); err != nil || !strings.HasSuffix(words, want) {
			t.Errorf("%s: %q, %v, want %q at the end", id, words, err, want)
		}
	}
	for id, want := range map[string]string{"old": StateOnWay, "new": StatePaused} {
		found, ok, err := s.Lookup("orders.delay", id)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", id, ok, err)
		}
		w := waiting(s, found)
		if told := strings.Contains(w.words(s.Pauses()), "is paused"); w.State != want || told != (id == "new") {
			t.Errorf("%s: state %s, want %s: %s", id, w.State, want, w.words(s.Pauses()))
		}
	}
}

func TestExplanation_saysWhatIsNotKnown(t *testing.T) {
	for want, e := range map[string]Explanation{
		"no message had this id since ids are served, as far back as feature level 3":                                           {},
		"no message waits under this id, and none has ended since 2030-03-17T17:46:40.000Z; what ended before may be forgotten": {KnownSince: 1_900_000_000_000},
	} {
		if diff := cmp.Diff([]string{want}, e.words(nil)); diff != "" {
			t.Error(diff)
		}
	}
	ended := Explanation{Events: []LifeEvent{{What: "refused"}}}
	if lines := ended.words(nil); lines[len(lines)-1] != "no message waits under this id" {
		t.Errorf("%q", lines)
	}
}

func TestImpossible_saysWhichIDsNoMessageCanHave(t *testing.T) {
	b := &Broker{config: config.Default()}
	b.config.Routes = []config.Route{config.NewRoute("*.delay")}
	for _, test := range []struct{ topic, id, want string }{
		{"orders.delay", "reminder-7", ""},
		{"orders.delay", strings.Repeat("x", 256), ""},
		{"orders.delay", "api/01ARZ3NDEKTSV4RRFFQ69G5FAV", ""},
		{"orders", "reminder-7", `topic "orders" is no delay topic: no route has it, so no message comes by it; those of routes[].from are "*.delay"`},
		{"orders.delay", "", "no message can have this id: deliver-id is empty"},
		{"orders.delay", strings.Repeat("x", 257), "no message can have this id: deliver-id \"xxx"},
		{"orders.delay", "bills.delay/0/7", `no message can have this id: deliver-id "bills.delay/0/7" has the form topic/number/number`},
		{"orders.delay", "orders.delay/0/7", "this id names a message whose producer gave it none: `carillon get` finds it"},
	} {
		if got := b.Impossible(test.topic, test.id); !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s %q: %q, want %q", test.topic, test.id, got, test.want)
		}
	}
}
