package brokertest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/config"
)

// played plays a script and looks at it before its end, and returns the report.
func played(t *testing.T, text string, look func(p *player)) *Report {
	t.Helper()
	s, err := parseScript(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	report := NewReport()
	s.playAndLook(t, report, look)
	return report
}

// A fault at an event falls between it and what would have followed: of one message, due in a
// second, a kill before Kafka has it, before the Ack and after it leave other traces.
func TestEvents_areTheMomentsBetween(t *testing.T) {
	for _, test := range []struct {
		event       string
		least, most int // copies
	}{
		{"taken", 1, 1},
		{"claim", 1, 1},
		{"handed", 1, 2}, // the client has the record, and may have written it
		{"answered", 2, 2},
		{"acked", 1, 1},
	} {
		t.Run(test.event, func(t *testing.T) {
			t.Parallel()
			report := played(t, `
cluster nodes=3
at 0s create orders.delay
at 0s create orders
at 0s start all
at 10s produce orders.delay deliver-after=2s
on `+test.event+` after=10s kill here
at 30s expect leader
`, func(p *player) {
				synctest.Wait()
				got := 0
				for _, d := range p.consume() {
					if d.Topic == "orders" {
						got++
					}
				}
				if got < test.least || got > test.most {
					t.Errorf("%d copies in the target, want %d to %d", got, test.least, test.most)
				}
			})
			if report.Faults["kill"] != 1 || report.Events[test.event] == 0 {
				t.Errorf("report %+v", report)
			}
		})
	}
}

// Every event happens in a script that has cause for it, and the step is carried out there.
func TestEvents_happen(t *testing.T) {
	report := played(t, `
cluster nodes=3 flush=8192 segment=65536 patience=2m
at 0s create orders.delay
at 0s create orders
at 0s start all
at 5s produce orders.delay count=600 every=20ms deliver-after=20s value=some-more-text-so-that-there-is-something-to-flush-%
at 5s produce orders.delay deliver-to=late deliver-after=1s
at 30s create late
at 31s isolate leader
at 36s heal
at 50s stop n3
at 50s produce orders.delay count=100 bytes=400 every=20ms deliver-after=10s
at 80s produce orders.delay count=200 bytes=400 every=20ms deliver-after=10s
at 110s start n3
at 120s expect leader
`+onEach(), nil)
	for _, event := range events() {
		if report.Events[event] == 0 {
			t.Errorf("%q did not happen", event)
		}
	}
	if got, want := report.Faults["produce"], 4+len(events()); got != want {
		t.Errorf("%d steps that produce were carried out, want %d", got, want)
	}
}

// onEach has a line for each event.
func onEach() string {
	var lines strings.Builder
	for _, event := range events() {
		lines.WriteString("on " + event + " after=6s produce orders.delay deliver-after=1s\n")
	}
	return lines.String()
}

// A node that has just ended by itself is started before all counts as mended.
func TestSettle_startsWhatHasJustEnded(t *testing.T) {
	played(t, `
cluster nodes=3
at 0s create orders.delay
at 0s create orders
at 0s start all
at 10s produce orders.delay deliver-after=10s
`, func(p *player) { p.nodes[1].again.Store(true) })
}

// What is produced last is not on its way only: it is waited for until it is delivered.
func TestSettle_waitsForWhatWasProducedLast(t *testing.T) {
	for range 5 {
		report := played(t, `
cluster nodes=1 heartbeat=60s
at 0s create orders.delay
at 0s create orders
at 0s start all
at 1h produce orders.delay deliver-to=orders deliver-after=1s
`, func(*player) {})
		if report.Delivered != 1 {
			t.Fatalf("%d are delivered, want one", report.Delivered)
		}
	}
}

// Who raises an event waits until the step is done; what ends the node ends the waiting.
func TestScene_holdsWhoRaisesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene([]step{{on: trigger{event: "claim", nth: 2, after: time.Minute}, verb: "heal"}}, NewReport(), time.Now())
		n := newNode(nil, config.Member{ID: "n1"})
		ctx := t.Context()
		n.life.Store(&ctx)
		var raised []string
		raise := func(name string) {
			go func() {
				s.raise(n, "claim")
				raised = append(raised, name)
			}()
			synctest.Wait()
		}
		raise("too early")
		time.Sleep(time.Minute)
		raise("first")
		raise("second")
		if want := []string{"too early", "first"}; !slices.Equal(raised, want) {
			t.Fatalf("%v went on, want %v", raised, want)
		}
		due := s.take()
		if len(due) != 1 || due[0].at != n {
			t.Fatalf("%d steps are due, want one", len(due))
		}
		close(due[0].done)
		synctest.Wait()
		raise("third")
		if want := []string{"too early", "first", "second", "third"}; !slices.Equal(raised, want) {
			t.Fatalf("%v went on, want %v", raised, want)
		}
	})
}
