package broker

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/clock"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// follower is the status of a node that does its part.
func follower() node.Status {
	s := node.Status{Node: "n2", State: "follower", Leader: "n1", Term: 3, CommitIndex: 1000, AppliedIndex: 1000}
	for _, id := range []string{"n1", "n2", "n3"} {
		s.Members = append(s.Members, node.MemberStatus{Member: member.Member{ID: id}, Voter: true})
	}
	return s
}

func TestReady_saysWhyNot(t *testing.T) {
	running, starting := report.New(), report.New()
	running.SetRunning()
	running.SetLag(new(int64))
	leads := func(s *node.Status) { s.State, s.Leader = "leader", "n2" }
	for _, test := range []struct {
		what   string
		change func(*node.Status)
		report *report.Report
		want   string
	}{
		{"a follower that keeps up", func(*node.Status) {}, nil, ""},
		{"a follower under load", func(s *node.Status) { s.AppliedIndex -= mostBehind }, nil, ""},
		{"a follower far behind", func(s *node.Status) { s.AppliedIndex -= 500 }, nil, "catching up: 500 log entries are not applied yet"},
		{"no leader", func(s *node.Status) { s.State, s.Leader = "candidate", "" }, nil, "candidate: no leader is known"},
		{"a disk that hangs", func(s *node.Status) { s.LogError = "it hangs" }, nil, "follower: nothing can be written: it hangs"},
		{"not born", func(s *node.Status) { s.State, s.Waiting = "unborn", "no answer from n1" }, nil, "unborn: no answer from n1"},
		{"failed", func(s *node.Status) { s.State, s.Waiting = "failed", "unknown command" }, nil, "failed: unknown command"},
		{"replaced and copying", func(s *node.Status) { s.Members[1].Voter = false }, nil, "catching up: not a voter yet"},
		{"a leader whose term runs", leads, running, ""},
		{"a leader whose term starts", leads, starting, "leader: the term is not running yet"},
		{"a leader between terms", leads, nil, "leader: the term is not running yet"},
	} {
		b := Broker{clock: clock.New(clock.Config{Wall: time.Now, MaxSkew: time.Second})}
		b.report.Store(test.report)
		if err := b.ready(follower()); err != nil {
			t.Fatal(err)
		}
		status := follower()
		test.change(&status)
		got := ""
		if err := b.ready(status); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.what, got, test.want)
		}
	}
}

// What a follower has not applied may be little in entries, and all of the schedule.
func TestReady_isAFollowerThatAppliesWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(Broker)
		for i, step := range []struct {
			wait               time.Duration
			applied, committed uint64
			ready              bool
		}{
			{0, 0, 0, false}, // it has heard of no leader's log
			{0, 0, 11, false},
			{time.Minute, 0, 11, false}, // it is being sent the schedule
			{time.Second, 11, 15, true}, // under load
			{time.Hour, 15, 16, true},
			{mostLag, 15, 90, true},
			{time.Second, 15, 90, false}, // its disk hangs
			{time.Hour, 15, 90, false},
			{time.Second, 89, 120, true},
			{time.Second, 130, 130, true},
		} {
			time.Sleep(step.wait)
			s := follower()
			s.AppliedIndex, s.CommitIndex = step.applied, step.committed
			if err := b.ready(s); (err == nil) != step.ready {
				t.Errorf("step %d: %v", i, err)
			}
		}
	})
}

func TestStatus_tellsNoVoteBeforeThereIsAGroup(t *testing.T) {
	unborn := []node.MemberStatus{{Member: member.Member{ID: "n1", API: "a:1"}}, {Member: member.Member{ID: "n2", API: "b:1"}}}
	removed := slices.Clone(unborn)
	removed[0].RaftID, removed[0].Voter = "n1", true
	for _, test := range []struct {
		members []node.MemberStatus
		want    string
	}{
		{unborn, `[{"id":"n1","api":"a:1"},{"id":"n2","api":"b:1"}]`},
		{removed, `[{"id":"n1","api":"a:1","voter":true},{"id":"n2","api":"b:1","voter":false}]`},
	} {
		if text, err := json.Marshal(memberStatuses(test.members)); err != nil || string(text) != test.want {
			t.Errorf("%s (%v), want %s", text, err, test.want)
		}
	}
}

// Other versions read it: what was a list of patterns stays one.
func TestStatus_tellsTheRoutes(t *testing.T) {
	routes := []config.Route{{From: "a.*", MaxDelay: time.Second}, {From: "*.delay", MaxDelay: time.Minute}, {From: "a.*", MaxDelay: time.Hour}}
	var s Status
	s.tellRoutes(routes)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"routes":["a.*","*.delay","a.*"],"max_delay":{"*.delay":60000,"a.*":1000},`; !strings.Contains(string(text), want) {
		t.Errorf("%s lacks %s", text, want)
	}
}

func TestOldestDue_looksBelowTheHeldTargetsToo(t *testing.T) {
	store, err := storage.Open(storage.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if due := oldestDue(store); due != 0 {
		t.Errorf("with nothing pending: %d", due)
	}
	store.Accept([]storage.Entry{{Due: 500, Target: "parked"}, {Due: 900, Target: "orders"}})
	if due := oldestDue(store); due != 500 {
		t.Errorf("before any claim: %d, want 500", due)
	}
	store.SetClaim(storage.Claim{
		Through: 800, Mark: storage.Ref{Due: 800},
		Holds: []storage.Hold{{Target: "parked", Through: 400, Mark: storage.Ref{Due: 450}}},
	})
	if due := oldestDue(store); due != 500 {
		t.Errorf("with a held target: %d, want 500", due)
	}
	store.Kill([]storage.SeqRun{{First: 1, Last: 1}})
	if due := oldestDue(store); due != 900 {
		t.Errorf("after its delivery: %d, want 900", due)
	}
}

// With a member less the group has none to spare, and nothing else shows it: the others serve.
func TestStatus_tellsOfMembersThatAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		longAgo := time.Now()
		time.Sleep(time.Hour)
		began := time.Now()
		time.Sleep(90 * time.Second)
		n := node.Status{Node: "n1", Members: []node.MemberStatus{
			{Member: member.Member{ID: "n1"}}, {Member: member.Member{ID: "n2"}, LastContact: time.Now().Add(-2 * time.Second)},
			{Member: member.Member{ID: "n3"}, LastContact: longAgo}, {Member: member.Member{ID: "n4"}},
			{Member: member.Member{ID: "n5"}, LastContact: time.Now().Add(-mostSilent)},
		}}
		s := Status{Node: "n1", State: "leader", Members: memberStatuses(n.Members)}
		s.tellSilence(n.Members, began)
		if len(s.Problems) != 2 || !strings.HasPrefix(s.Problems[0], "members: n3 was not heard of for 1m30s: start it, or") || !strings.Contains(s.Problems[1], "`carillon cluster replace n4`") {
			t.Errorf("problems %q", s.Problems)
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(NewCollector(func() Status { return s }))
		text := exposition(t, registry)
		for _, line := range []string{`{member="n2"} 2`, `{member="n3"} 90`, `{member="n4"} 90`, `{member="n5"} 60`} {
			if !strings.Contains(text, "\ncarillon_member_last_contact_seconds"+line+"\n") {
				t.Errorf("%s is missing in:\n%s", line, text)
			}
		}
		if strings.Contains(text, `_contact_seconds{member="n1"}`) {
			t.Error("the leader hears itself")
		}
	})
}

func TestStatus_tellsNothingParkedFromNotKnown(t *testing.T) {
	for want, report := range map[string]*report.Report{`"parked":[]`: report.New(), `"parked":["orders"]`: report.New(), "": nil} {
		if strings.Contains(want, "orders") {
			report.SetParked(3, "orders")
		}
		var s Status
		if report != nil {
			s.tell(report)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) || strings.Contains(string(text), "parked") != (want != "") {
			t.Errorf("%s, want %q", text, want)
		}
	}
}
