package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/clienttest"
)

// A told is what a run of the program has said.
type told struct {
	code         int
	out, problem string
}

// inMemory returns a Carillon in memory, in which reminder-0 to reminder-9 wait for orders, 10 to 100 minutes
// ahead, and what runs the program against it.
func inMemory(t *testing.T) (*clienttest.Server, func(...string) told) {
	t.Helper()
	s, carillon, _ := served(t)
	return s, carillon
}

// served returns as well where it answers.
func served(t *testing.T) (s *clienttest.Server, carillon func(...string) told, address string) {
	t.Helper()
	s = clienttest.New(t)
	node := httptest.NewServer(s)
	t.Cleanup(node.Close)
	for i := range 10 {
		_, err := s.Admin().Schedule(t.Context(), client.ScheduleRequest{
			Topic: "orders.delay", ID: "reminder-" + strconv.Itoa(i), DeliverTo: "orders",
			DeliverAt: s.Now().Add(time.Duration(10*(i+1)) * time.Minute).UTC().Format(time.RFC3339Nano), Value: client.Text("ship it"),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	address = strings.TrimPrefix(node.URL, "http://")
	return s, func(arguments ...string) told {
		t.Helper()
		var stdout, stderr strings.Builder
		code := run(t.Context(), append(arguments, "--api", address), strings.NewReader(""), &stdout, &stderr)
		return told{code, stdout.String(), stderr.String()}
	}, address
}

func (r told) expect(t *testing.T, code int, out, problem string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.problem, problem) || (problem == "") != (r.problem == "") {
		t.Errorf("exit code %d, want %d\n%s\nwant %q\n%s\nwant %q", r.code, code, r.out, out, r.problem, problem)
	}
}

func TestBulk_doesNothingBeforeItIsSaidInWords(t *testing.T) {
	s, carillon := inMemory(t)
	carillon("bulk", "cancel", "--reason", "x").expect(t, exitUsage, "", "nothing says which messages are meant: give a filter, or --all if you mean all of them")
	carillon("bulk", "cancel", "--target", "orders").expect(t, exitUsage, "", "say with --reason why")
	carillon("bulk", "cancel", "--target", "orders", "--reason", "x").expect(t, exitUsage, "", "10 messages to cancel: without a terminal nobody can be asked, say --yes")
	carillon("bulk", "cancel", "--all", "--dry-run").expect(t, exitDone, "10 messages to cancel: nothing was done\n", "")
	carillon("bulk", "change", "--all", "--reason", "x").expect(t, exitUsage, "", "say what is to be different: --at, --in, --shift or --to")
	carillon("bulk", "change", "--all", "--reason", "x", "--shift", "0").expect(t, exitUsage, "", `--shift is "0": write a duration`)
	carillon("bulk", "now", "--all", "--reason", "x", "--rate=-1").expect(t, exitUsage, "", `--rate is "-1": use 1 or more`)
	carillon("bulk", "now", "--topic", "a", "--due-before", "soon", "--reason", "x").expect(t, exitUsage, "", `--due-before is "soon"`)
	if n, err := s.Admin().Count(t.Context(), client.Filter{}); err != nil || n.Count != 10 {
		t.Errorf("%d are left, %v", n.Count, err)
	}
	if all, err := s.Admin().Operations(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("operations %v, %v", all, err)
	}
}

func TestBulk_meansNoOthersByAPrefixThatIsNoText(t *testing.T) {
	s, carillon := inMemory(t)
	_, err := s.Admin().Schedule(t.Context(), client.ScheduleRequest{Topic: "orders.delay", ID: "\uFFFD-1", DeliverTo: "orders", DeliverAfter: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"cancel", "now"} {
		carillon("bulk", verb, "--prefix", "\xe9", "--reason", "x", "--yes", "--wait").expect(t, exitUsage, "", `--prefix is "\xe9": it is not valid UTF-8`)
	}
	if n, err := s.Admin().Count(t.Context(), client.Filter{}); err != nil || n.Count != 11 {
		t.Errorf("%d are left, %v", n.Count, err)
	}
}

func TestBulk_doesWhatTheFilterMeans(t *testing.T) {
	s, carillon := inMemory(t)
	carillon("bulk", "cancel", "--target", "orders", "--due-before", "35m", "--reason", "wrong prices", "--yes", "--wait").
		expect(t, exitDone, "finished: 3 cancelled, 0 too late, 0 not found, 0 refused\n", "")
	carillon("count").expect(t, exitDone, "7\n", "")
	carillon("get", "--topic", "orders.delay", "reminder-0").expect(t, exitDone, "cancelled", "")
	carillon("bulk", "change", "--prefix", "reminder-4", "--shift=-5m", "--to", "bills", "--reason", "x", "--yes", "--wait").
		expect(t, exitDone, "finished: 1 changed", "")
	carillon("count", "--by-target").expect(t, exitDone, "bills   1\norders  6\n", "")
	carillon("bulk", "now", "--target", "bills", "--reason", "x", "--yes", "--wait", "--json").expect(t, exitDone, `"done": "1"`, "")
	s.Advance(time.Second)
	if delivered := s.Delivered(); len(delivered) != 1 || delivered[0].Topic != "bills" {
		t.Errorf("delivered %v", delivered)
	}
	got := carillon("operations", "list")
	got.expect(t, exitDone, "wrong prices", "")
	lines := strings.Split(got.out, "\n")
	id := strings.Fields(lines[len(lines)-2])[0] // the first one
	carillon("operations", "get", id).expect(t, exitDone, "cancel --target orders before ", "")
	carillon("operations", "get", id, "--json").expect(t, exitDone, `"reason": "wrong prices"`, "")
	carillon("operations", "get", "999").expect(t, exitAbsent, "", "999")
	carillon("operations", "get", "nothing").expect(t, exitUsage, "", `"nothing" is no id of an operation`)
	carillon("operations", "stop", "0").expect(t, exitUsage, "", `"0" is no id of an operation`)
	carillon("operations", "stop", id).expect(t, exitDone, id, "")
}

func TestDeadLetters_areListedAndScheduledAnew(t *testing.T) {
	s, carillon := inMemory(t)
	s.RefuseTarget("orders", "unknown-topic", "there is no such topic")
	s.Advance(25 * time.Minute)
	listed := carillon("dead-letters", "list", "--target", "orders")
	listed.expect(t, exitDone, "unknown-topic", "")
	if n := strings.Count(listed.out, "unknown-topic"); n != 2 {
		t.Fatalf("%d are listed:\n%s", n, listed.out)
	}
	lines := strings.Split(listed.out, "\n")
	first, second := strings.Fields(lines[1])[0], strings.Fields(lines[2])[0]
	carillon("dead-letters", "list", "--limit", "1").expect(t, exitDone, "and more: say more of what is meant", "")
	carillon("dead-letters", "list", "--json").expect(t, exitDone, `"code":"unknown-topic"`, "")
	carillon("dead-letters", "get", first).expect(t, exitDone, "value        ship it\n", "")
	carillon("dead-letters", "get", first, "--json").expect(t, exitDone, `"payload": {`, "")
	carillon("dead-letters", "get", "carillon.dead-letter/0/99").expect(t, exitAbsent, "", "99")
	carillon("dead-letters", "get", "carillon.dead-letter/0").expect(t, exitUsage, "", `"carillon.dead-letter/0" is no dead letter: write TOPIC/PARTITION/OFFSET`)
	carillon("dead-letters", "replay", first, "--to", "bills", "--in", "1m").expect(t, exitDone, "scheduled: ", "")
	carillon("dead-letters", "replay", first, "--to", "bills").expect(t, exitAbsent, "", "replayed before")
	carillon("bulk", "replay", "--target", "orders", "--to", "bills", "--reason", "there is no such topic", "--yes", "--wait").
		expect(t, exitDone, "finished: 1 replayed, 1 replayed before, 0 not found, 0 refused\n", "")
	carillon("bulk", "replay", "--target", "orders", "--dry-run").expect(t, exitDone, "0 dead letters to replay: nothing was done\n", "")
	carillon("bulk", "replay", "--target", "orders", "--again", "--dry-run").expect(t, exitDone, "2 dead letters to replay: nothing was done\n", "")
	carillon("bulk", "replay", "--reason", "x").expect(t, exitUsage, "", "or --all if you mean all of them")
	carillon("bulk", "replay", "--all", "--shift", "1h").expect(t, exitUsage, "", "unknown flag: --shift")
	carillon("operations", "get", "1").expect(t, exitDone, "what      replay --target orders\n", "")
	s.Advance(2 * time.Minute)
	if delivered := s.Delivered(); len(delivered) != 2 {
		t.Errorf("%d are delivered", len(delivered))
	}
	carillon("dead-letters", "get", second).expect(t, exitDone, "replayed     yes\n", "")
}

// Who stops waiting stops nothing, and learns where to look.
func TestBulk_goesOnWhenNobodyWaitsAnyMore(t *testing.T) {
	var stdout, stderr strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel() // Ctrl-C while the answer is on its way
		<-r.Context().Done()
	}))
	defer node.Close()
	code := run(ctx, []string{"operations", "get", "7", "--wait", "--api", strings.TrimPrefix(node.URL, "http://")}, nil, &stdout, &stderr)
	if want := "carillon: operation 7 goes on, carillon operations get 7 shows how far it is: "; code != exitFailed || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("exit code %d: %q, want %q", code, stderr.String(), want)
	}
}
