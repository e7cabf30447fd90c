package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

func TestExplain_printsWhatANodeTells(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("topic") != "orders.delay" || r.URL.Query().Get("id") != "a b" {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error": "ids are not served: raise the level"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(broker.Explanation{Topic: "orders.delay", ID: "a b", Waiting: &broker.Waiting{Seq: 1}, Words: []string{"message 1 waits", "message 2 as well"}})
	}))
	defer node.Close()
	ask := func(arguments ...string) (code int, out, problem string) {
		var stdout, stderr strings.Builder
		code = run(t.Context(), append([]string{"explain", "--api", strings.TrimPrefix(node.URL, "http://"), "--topic", "orders.delay"}, arguments...), nil, &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	if code, out, problem := ask("a b"); code != exitDone || out != "message 1 waits\nmessage 2 as well\n" {
		t.Errorf("exit %d: %q %q", code, out, problem)
	}
	code, out, _ := ask("--json", "a b")
	var e broker.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != exitDone || e.ID != "a b" {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	if code, _, problem := ask("other"); code != exitFailed || problem != "carillon: ids are not served: raise the level\n" {
		t.Errorf("exit %d: %q", code, problem)
	}
}

// A message went to its target; what was refused is a record of the delay topic.
func TestPlaceOf_tellsARecordFromATarget(t *testing.T) {
	partition, offset := int32(3), int64(17)
	for want, o := range map[string]client.Outcome{
		"orders/3/17": {Kind: client.OutcomeDelivered, Target: "orders", Partition: &partition, Offset: &offset},
		"orders/3":    {Kind: client.OutcomeDelivered, Target: "orders", Partition: &partition},
		"record/3/17": {Kind: client.OutcomeRefused, Target: "orders", Partition: &partition, Offset: &offset},
		"orders":      {Kind: client.OutcomeRefused, Target: "orders"},
	} {
		if got := placeOf(o); got != want {
			t.Errorf("%+v is told as %q, want %q", o, got, want)
		}
	}
}

func TestPrintLife_tellsOfARefusedCancelNoTime(t *testing.T) {
	var out strings.Builder
	life := client.Life{Outcomes: []client.Outcome{{Kind: client.OutcomeRefused, At: 1_900_000_000_000, Target: "orders"}}}
	if err := printLife(&out, life, time.Now()); err != nil {
		t.Fatal(err)
	}
	if want := "2030-03-17T17:46:40.000Z  refused  none  none  orders\n"; strings.Contains(out.String(), "1970") || !strings.HasSuffix(out.String(), want) {
		t.Errorf("want %q at the end of:\n%s", want, out.String())
	}
}

// No node is asked: there is none.
func TestFilters_refuseWhatNothingCanBeIn(t *testing.T) {
	for _, test := range []struct{ command, want string }{
		{"list --due-from 2h --due-before 1h", `--due-before is "1h": nothing is between --due-from and it; name a later time`},
		{"count --due-before 1970-01-01T00:00:00Z", `--due-before is "1970-01-01T00:00:00Z": nothing is between --due-from and it; name a later time`},
		{"bulk cancel --due-from 2030-01-01T00:00:00Z --due-before 2030-01-01T00:00:00Z --reason x", `--due-before is "2030-01-01T00:00:00Z": nothing is between --due-from and it; name a later time`},
		{"dead-letters list --since 1h --before 2h", `--before is "2h": nothing is between --since and it; name a later time`},
		{"list --limit -1", `--limit is "-1": use 1 or more, or 0 for all`},
		{"dead-letters list --limit -1", `--limit is "-1": use 1 or more, or 0 for all`},
	} {
		var out, problem strings.Builder
		code := run(t.Context(), append(strings.Fields(test.command), "--api", "127.0.0.1:1"), strings.NewReader(""), &out, &problem)
		if code != exitUsage || problem.String() != "carillon: "+test.want+"\n" {
			t.Errorf("%s: exit %d, %q; want %d, %q", test.command, code, problem.String(), exitUsage, test.want)
		}
	}
}
