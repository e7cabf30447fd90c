package bulk

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"context"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// An aloneLog is that of a group of one.
type aloneLog struct{ *node.Node }

func (aloneLog) Leader() string { return "" }

// A fixture is a desk over a group of one, at level four with open ids. Its Runner runs after lead.
type fixture struct {
	*Desk
	t      *testing.T
	node   *node.Node
	counts *nodetest.Counter
	begun  time.Time
}

func atDesk(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, end := open(t)
		defer end()
		test(t, f)
	})
}

// open returns the fixture, without dead letters.
func open(t *testing.T, before ...raftfsm.Command) (f *fixture, end func()) {
	n := nodetest.Open(t, t.Context())
	f = &fixture{t: t, node: n, counts: &nodetest.Counter{}, begun: time.Now()}
	f.propose(raftfsm.RaiseLevel{Level: storage.LevelFour})
	f.propose(raftfsm.Found{ClusterID: [16]byte{7}})
	for _, c := range before {
		f.propose(c)
	}
	f.propose(raftfsm.OpenIDs{UpTo: n.Store().NextSeq() - 1})
	cfg := config.Default()
	cfg.Targets.Deny = append(cfg.Targets.Deny, "secret*")
	orders := order.New(order.Options{Config: cfg, Store: n.Store(), Log: n, Count: f.counts, Begun: hasBegun, Now: time.Now, Due: time.Now})
	f.Desk = New(Options{Store: n.Store(), Log: n, Queries: query.New(n.Store(), aloneLog{n}), Orders: orders, Count: f.counts, Begun: hasBegun, Now: time.Now, Due: time.Now, Logger: slog.New(slog.DiscardHandler)})
	return f, func() { n.Close() }
}

// lead runs operations until the test ends, or the function that it returns is called.
func (f *fixture) lead() (end func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f.Run(ctx); !errors.Is(err, context.Canceled) {
			f.t.Errorf("the runner ended: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (f *fixture) propose(c raftfsm.Command) raftfsm.Result {
	f.t.Helper()
	result, err := f.node.Propose(f.t.Context(), c).Wait(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

// put schedules count messages of a delay topic, due a second apart from an hour on. Every other one has an
// id, NAME-NUMBER.
func (f *fixture) put(topic, target, name string, count int) {
	f.t.Helper()
	var c raftfsm.Operate
	for i := range count {
		m := message.Message{Origin: message.Origin{Topic: topic, Offset: int64(i)}, Partition: -1, Value: fmt.Appendf(nil, "%s %d", name, i)}
		if i%2 == 0 {
			m.ID = fmt.Sprintf("%s-%d", name, i)
		}
		m.PlannedFor = f.begun.Add(time.Hour + time.Duration(i)*time.Second).UnixMilli()
		c.Operations = append(c.Operations, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: m.Entry(m.PlannedFor, target, storage.LevelFour)})
	}
	f.propose(c)
}

// A waiting is a message that is pending.
type waiting struct {
	value, target string
	due           int64
	seq           uint64
}

// pending returns what waits, in order of delivery.
func (f *fixture) pending() (all []waiting) {
	f.t.Helper()
	for at, done := (storage.Ref{}), false; !done; {
		page, err := f.node.Store().List(f.t.Context(), storage.ListQuery{From: at, Last: math.MaxInt64, Limit: 1 << 20, Bodies: true})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, item := range page.Items {
			m, err := message.FromEntry(&storage.Entry{Topic: item.Topic, ID: item.ID, Body: item.Body})
			if err != nil {
				f.t.Fatal(err)
			}
			all = append(all, waiting{string(m.Value), item.Target, item.Due, item.Seq})
		}
		at, done = page.Next, page.Done
	}
	return all
}

func (f *fixture) start(r client.OperationRequest) client.Operation {
	f.t.Helper()
	o, err := f.Start(f.t.Context(), r, "ann", "")
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// pass lets time go by in the bubble.
func (f *fixture) pass(d time.Duration) { time.Sleep(d) }

// ended waits for the end of the operation.
func (f *fixture) ended(id string) client.Operation {
	f.t.Helper()
	for range 100_000 {
		o, err := f.Get(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if o.State != client.OperationRunning {
			return o
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.t.Fatal("it does not end")
	return client.Operation{}
}

// expect compares the counts.
func (f *fixture) expect(o client.Operation, done, tooLate, notFound, failed uint64) {
	f.t.Helper()
	if o.State != client.OperationFinished || o.Done != done || o.TooLate != tooLate || o.NotFound != notFound || o.Failed != failed || o.Ended == 0 {
		f.t.Errorf("%+v, want %d done, %d too late, %d not found, %d failed", o, done, tooLate, notFound, failed)
	}
}

func TestCancel_endsWhatTheFilterMeansAndNothingThatComesLater(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 700)
		f.put("b.delay", "orders", "b", 10)
		letter := (&message.Message{Origin: message.Origin{Topic: "a.delay"}, Value: []byte("letter")}).AsDeadLetter(message.Problem{Code: "x", Message: "y"}, f.begun.Add(2*time.Hour).UnixMilli())
		f.propose(raftfsm.Operate{Operations: []raftfsm.Operation{{Verb: raftfsm.Schedule, Entry: letter.Entry(letter.PlannedFor, "dead", storage.LevelFour)}}})
		o := f.start(client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "a.delay"}, Reason: "wrong prices"})
		if o.State != client.OperationRunning || o.UpperSeq != 711 || o.Who != "ann" || o.Reason != "wrong prices" || o.ID != "1" {
			f.t.Errorf("started %+v", o)
		}
		f.put("a.delay", "orders", "later", 10)
		// One waits under the id of a message that is meant, another was delivered.
		f.propose(raftfsm.Operate{Operations: []raftfsm.Operation{{Verb: raftfsm.Schedule, Entry: storage.Entry{Due: f.begun.Add(time.Hour).UnixMilli(), Target: "orders", Topic: "a.delay", ID: "a-4", Body: letter.AppendBody(nil, storage.LevelFour)}}}})
		f.propose(raftfsm.Ack{Runs: []storage.SeqRun{{First: 2, Last: 2}}})
		defer f.lead()()
		o = f.ended("1")
		f.expect(o, 698, 3, 0, 0) // the letter, the one that was replaced, the one that was delivered
		if o.Matched != 700+1 || o.Within != 0 {
			f.t.Errorf("%d were meant, %d off", o.Matched, o.Within)
		}
		got := f.pending()
		if len(got) != 10+10+1+1 || slices.ContainsFunc(got, func(w waiting) bool { return strings.HasPrefix(w.value, "a ") }) {
			f.t.Errorf("%d wait: %v", len(got), got)
		}
		if f.counts.By["cancelled"] != 349 {
			f.t.Errorf("counted %v", f.counts.By)
		}
	})
}

// Of several messages with one id, from before ids, all but the newest have lost it. They are meant all the same.
func TestCancel_endsWhatHasLostItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var accepted raftfsm.Operate
		var opened raftfsm.OpenIDs
		due := time.Now().Add(time.Hour).UnixMilli()
		for seq := range uint64(3) {
			m := message.Message{Origin: message.Origin{Topic: "a.delay", Offset: int64(seq)}, Partition: -1, ID: "same", PlannedFor: due}
			accepted.Operations = append(accepted.Operations, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: m.Entry(due, "orders", storage.LevelTwo)})
			opened.Named = append(opened.Named, storage.Named{Ref: storage.Ref{Due: due, Seq: seq + 1}, Target: "orders", Topic: "a.delay", ID: "same"})
		}
		f, end := open(t, accepted, opened)
		defer end()
		f.start(client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "a.delay"}, Reason: "r"})
		defer f.lead()()
		f.expect(f.ended("1"), 3, 0, 0, 0)
		if got := f.pending(); len(got) > 0 {
			t.Errorf("%v wait", got)
		}
	})
}

// What is claimed while the operation runs is too late; what has ended between reading and the log is
// told apart.
func TestStep_countsFatesApart(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 12)
		f.start(client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "a.delay"}, Reason: "r"})
		o, _ := f.node.Store().RunningBulk(1)
		task, err := readTask(o.What)
		if err != nil {
			t.Fatal(err)
		}
		step, err := f.gather(t.Context(), o, &task, 100)
		if err != nil || len(step.Operations) != 12 || !step.Finished {
			t.Fatalf("%+v, %v", step, err)
		}
		f.propose(raftfsm.ChangeClaim{ClaimChange: storage.ClaimChange{Through: f.begun.Add(time.Hour + 3*time.Second).UnixMilli()}}) // a 0 to a 3
		f.propose(raftfsm.Ack{Runs: []storage.SeqRun{{First: 2, Last: 2}, {First: 10, Last: 10}}})                                    // a 1 and a 9
		stale := step
		f.propose(step)
		if again := f.propose(stale); again.Changed || again.Answers != nil {
			t.Errorf("the same step twice: %+v", again)
		}
		got, err := f.Get(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		f.expect(got, 7, 3, 2, 0)
	})
}

func TestChange_movesEachMessageOnce(t *testing.T) {
	for _, test := range []struct {
		name   string
		change client.BulkChange
		due    func(i int) time.Duration // after the beginning
		target string
	}{
		{"later", client.BulkChange{Shift: "1h"}, func(i int) time.Duration { return 2*time.Hour + time.Duration(i)*time.Second }, "orders"},
		{"earlier", client.BulkChange{Shift: "-PT30M"}, func(i int) time.Duration { return time.Hour/2 + time.Duration(i)*time.Second }, "orders"},
		{"to one time", client.BulkChange{DeliverAfter: "3h"}, func(int) time.Duration { return 3 * time.Hour }, "orders"},
		{"elsewhere", client.BulkChange{DeliverTo: "bills"}, func(i int) time.Duration { return time.Hour + time.Duration(i)*time.Second }, "bills"},
		{"both", client.BulkChange{DeliverAt: "2000-01-01T05:00:00Z", DeliverTo: "bills"}, func(int) time.Duration { return 5 * time.Hour }, "bills"},
	} {
		t.Run(test.name, func(t *testing.T) {
			atDesk(t, func(t *testing.T, f *fixture) {
				f.put("a.delay", "orders", "a", 600)
				o := f.start(client.OperationRequest{Verb: client.OperationChange, Filter: client.Filter{Target: "orders"}, Reason: "r", Change: &test.change})
				time.Sleep(time.Minute) // the time is fixed
				if o.Change.DeliverAfter != "" {
					t.Errorf("change %+v", o.Change)
				}
				defer f.lead()()
				f.expect(f.ended("1"), 600, 0, 0, 0)
				got := f.pending()
				slices.SortFunc(got, func(a, b waiting) int { return int(a.seq) - int(b.seq) })
				if len(got) != 600 {
					t.Fatalf("%d wait", len(got))
				}
				for i, w := range got {
					want := waiting{fmt.Sprint("a ", i), test.target, f.begun.Add(test.due(i)).UnixMilli(), uint64(601 + i)}
					if w != want {
						t.Fatalf("message %d is %+v, want %+v", i, w, want)
					}
				}
			})
		})
	}
}

// What cannot be as it is asked for stays, and the last one is told of.
func TestChange_leavesWhatCannotBe(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 5)
		// They are due a second apart from an hour on: the first three come to no more than may be.
		shift := f.Orders.MaxDelay() - time.Hour - 2*time.Second
		f.start(client.OperationRequest{Verb: client.OperationChange, All: true, Reason: "r", Change: &client.BulkChange{Shift: fmt.Sprintf("PT%dS", int(shift.Seconds()))}})
		defer f.lead()()
		o := f.ended("1")
		f.expect(o, 3, 0, 0, 2)
		if !strings.HasPrefix(o.Problem, "message 5: ") || !strings.Contains(o.Problem, "max_delay") || len(f.pending()) != 5 {
			t.Errorf("problem %q, %d wait", o.Problem, len(f.pending()))
		}
	})
}

func TestNow_makesDueAtTheStart(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 5)
		o := f.start(client.OperationRequest{Verb: client.OperationNow, Filter: client.Filter{Prefix: "a-"}, Reason: "r"})
		time.Sleep(time.Minute)
		defer f.lead()()
		f.expect(f.ended("1"), 3, 0, 0, 0)
		for i, w := range f.pending() {
			if i < 3 && w.due != o.Started || i >= 3 && w.due <= o.Started {
				t.Errorf("%+v, started %d", w, o.Started)
			}
		}
	})
}

func TestRate_isKeptAndStopEndsIt(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 400)
		f.start(client.OperationRequest{Verb: client.OperationCancel, All: true, Reason: "r", Rate: 20})
		end := f.lead()
		time.Sleep(10*time.Second + 20*time.Millisecond)
		o, err := f.Get(t.Context(), "1")
		if err != nil || o.Done < 195 || o.Done > 204 {
			t.Errorf("%d are done after ten seconds at 20 a second, %v", o.Done, err)
		}
		end() // the next term goes on from there
		time.Sleep(time.Minute)
		defer f.lead()()
		time.Sleep(5*time.Second + 20*time.Millisecond)
		o, err = f.Stop(t.Context(), "1", "bob", "enough")
		if err != nil || o.State != client.OperationStopped || o.Done < 290 || o.Done > 306 || o.Problem != "stopped by bob: enough" {
			t.Errorf("stopped as %+v, %v", o, err)
		}
		time.Sleep(time.Minute)
		if left := len(f.pending()); uint64(left) != 400-o.Done {
			t.Errorf("%d wait, %d were done when it was stopped", left, o.Done)
		}
		again, err := f.Stop(t.Context(), "1", "cyd", "")
		if err != nil || again.Problem != o.Problem {
			t.Errorf("stopped again as %+v, %v", again, err)
		}
	})
}

func TestStart_refusesBadInput(t *testing.T) {
	topic := client.Filter{Topic: "a.delay"}
	atDesk(t, func(t *testing.T, f *fixture) {
		for _, test := range []struct {
			name       string
			request    client.OperationRequest
			field, say string
		}{
			{"no verb", client.OperationRequest{}, "verb", "write cancel, change, now or replay"},
			{"an unknown verb", client.OperationRequest{Verb: "delete", Filter: topic, Reason: "r"}, "verb", `"delete" is not known`},
			{"a replay of a prefix", client.OperationRequest{Verb: "replay", Filter: client.Filter{Topic: "a.delay", Prefix: "a"}, Reason: "r"}, "filter.prefix", "dead letters have"},
			{"a replay of a state", client.OperationRequest{Verb: "replay", Filter: client.Filter{Topic: "a.delay", States: []string{"waiting"}}, Reason: "r"}, "filter.states", "dead letters have"},
			{"a replay of a range that ends before", client.OperationRequest{Verb: "replay", Filter: client.Filter{From: 9, To: 8}, Reason: "r"}, "filter.to", "give a later end"},
			{"a replay of anything", client.OperationRequest{Verb: "replay", Reason: "r"}, "filter", `say "all": true`},
			{"a replay of all up to now", client.OperationRequest{Verb: "replay", Filter: client.Filter{To: math.MaxInt64}, Reason: "r"}, "filter.to", `say "all": true`},
			{"a replay of all since there was Kafka", client.OperationRequest{Verb: "replay", Filter: client.Filter{From: 1}, Reason: "r"}, "filter.from", `say "all": true`},
			{"a replay of all and a code", client.OperationRequest{Verb: "replay", Filter: client.Filter{Code: "malformed"}, All: true, Reason: "r"}, "all", "leave one of the two out"},
			{"a replay that shifts", client.OperationRequest{Verb: "replay", Filter: topic, Reason: "r", Change: &client.BulkChange{Shift: "1h"}}, "change.shift", "deliver_after"},
			{"a replay at a time in seconds", client.OperationRequest{Verb: "replay", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverAt: "1900000000"}}, "change.deliver_at", "looks like seconds"},
			{"a replay to no target", client.OperationRequest{Verb: "replay", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverTo: "a/b"}}, "change.deliver_to", "is not a topic name"},
			{"a replay without a reason", client.OperationRequest{Verb: "replay", Filter: topic}, "reason", "say why"},
			{"a long key", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: "r"}, "Idempotency-Key", "257 bytes"},
			{"no filter", client.OperationRequest{Verb: "cancel", Reason: "r"}, "filter", `say "all": true`},
			{"states alone", client.OperationRequest{Verb: "cancel", Filter: client.Filter{States: []string{"waiting"}}, Reason: "r"}, "filter", `say "all": true`},
			{"a time that all is after", client.OperationRequest{Verb: "cancel", Filter: client.Filter{From: 1}, Reason: "r"}, "filter.from", `say "all": true`},
			{"a time that all but the next second is after", client.OperationRequest{Verb: "cancel", Filter: client.Filter{From: f.begun.Add(time.Second).UnixMilli()}, Reason: "r"}, "filter.from", `say "all": true`},
			{"a time that nothing may be due after", client.OperationRequest{Verb: "cancel", Filter: client.Filter{To: f.begun.Add(f.Orders.MaxDelay() - time.Second).UnixMilli()}, Reason: "r"}, "filter.to", `say "all": true`},
			{"no filter, dry", client.OperationRequest{Verb: "cancel", DryRun: true}, "filter", `say "all": true`},
			{"all and a filter", client.OperationRequest{Verb: "cancel", Filter: topic, All: true, Reason: "r"}, "all", "leave one of the two out"},
			{"an unknown state", client.OperationRequest{Verb: "cancel", Filter: client.Filter{Topic: "a.delay", States: []string{"asleep"}}, Reason: "r"}, "filter.states", "asleep"},
			{"a code", client.OperationRequest{Verb: "cancel", Filter: client.Filter{Topic: "a.delay", Code: "malformed"}, Reason: "r"}, "filter.code", "is of dead letters"},
			{"a range that ends before", client.OperationRequest{Verb: "cancel", Filter: client.Filter{From: 9, To: 8}, Reason: "r"}, "filter.to", "give a later end"},
			{"no reason", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: " "}, "reason", "say why"},
			{"a long reason", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: strings.Repeat("r", 501)}, "reason", "501 bytes"},
			{"a rate below 0", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: "r", Rate: -1}, "rate", "1 to 1000000"},
			{"a rate without bounds", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: "r", Rate: 1_000_001}, "rate", "1 to 1000000"},
			{"again", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: "r", Again: true}, "again", "dead letters"},
			{"a cancel that changes", client.OperationRequest{Verb: "cancel", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverTo: "x"}}, "change", "leave it out"},
			{"a change of nothing", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r"}, "change", "deliver_after"},
			{"two times", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverAfter: "1h", Shift: "1h"}}, "change", "several times"},
			{"a time in seconds", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverAt: "1900000000"}}, "change.deliver_at", "looks like seconds"},
			{"a time without zone", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverAt: "2030-01-01T00:00:00"}}, "change.deliver_at", "append Z"},
			{"a negative delay", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverAfter: "-1h"}}, "change.deliver_after", "negative"},
			{"a shift by nothing", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{Shift: "-0s"}}, "change.shift", "moves nothing"},
			{"no shift", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{Shift: "soon"}}, "change.shift", `change.shift "soon" is not a delay: use milliseconds`},
			{"no target", client.OperationRequest{Verb: "change", Filter: topic, Reason: "r", Change: &client.BulkChange{DeliverTo: "a/b"}}, "change.deliver_to", "is not a topic name"},
		} {
			key := ""
			if test.name == "a long key" {
				key = strings.Repeat("k", 257)
			}
			_, err := f.Start(t.Context(), test.request, "ann", key)
			problem, ok := errors.AsType[*client.Problem](err)
			if !ok || problem.Code != client.CodeBadRequest || problem.Field != test.field || !strings.Contains(problem.Detail, test.say) {
				t.Errorf("%s: %+v", test.name, err)
			}
		}
		for _, id := range []string{"", "x", "0", "-1"} {
			if _, err := f.Get(t.Context(), id); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("get %q: %v", id, err)
			}
		}
		if _, err := f.Get(t.Context(), "7"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("get 7: %v", err)
		}
		if _, err := f.Stop(t.Context(), "7", "ann", strings.Repeat("r", 600)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("a long word: %v", err)
		}
		if all := f.Local(); len(all.Operations) != 0 {
			t.Errorf("started %+v", all)
		}
	})
}

// A message that cannot be read may be a dead letter, unless its entry has an id: dead letters have none.
func TestCancel_leavesWhatMayBeADeadLetter(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		due := f.begun.Add(time.Hour).UnixMilli()
		for _, id := range []string{"", "order-7"} {
			f.propose(raftfsm.Operate{Operations: []raftfsm.Operation{{Verb: raftfsm.Schedule, Entry: storage.Entry{Due: due, Target: "orders", Topic: "a.delay", ID: id, Body: []byte("torn")}}}})
		}
		f.start(client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "a.delay"}, Reason: "r"})
		defer f.lead()()
		o := f.ended("1")
		f.expect(o, 1, 0, 0, 1)
		if pending := f.node.Store().State().Pending; pending != 1 || !strings.Contains(o.Problem, "message 1: it is stored, and cannot be read") {
			t.Errorf("%d wait, problem %q", pending, o.Problem)
		}
	})
}

// hasBegun is that of a leader whose time is right.
func hasBegun() error { return nil }

// askedQueries tell when they are asked.
type askedQueries struct {
	Queries
	asked func()
}

func (q askedQueries) Histogram(ctx context.Context, r query.HistogramRequest) (client.Histogram, error) {
	q.asked()
	return q.Queries.Histogram(ctx, r)
}

// The clock of the leader is a year behind, which the others say while what an operation means is counted. What is to be
// late by an hour would come at once by the time from before.
func TestStart_countsFromNoTimeThatIsWrong(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.put("a.delay", "orders", "a", 2)
		compared := false
		f.Begun = func() error {
			if compared {
				return nil
			}
			return raftfsm.ErrBusy
		}
		f.Now = func() time.Time {
			if compared {
				return time.Now()
			}
			return time.Now().AddDate(-1, 0, 0)
		}
		f.Queries = askedQueries{f.Queries, func() { compared = true }}
		start := func() (client.Operation, error) {
			return f.Start(t.Context(), client.OperationRequest{Verb: client.OperationChange, Filter: client.Filter{Topic: "a.delay"}, Change: &client.BulkChange{DeliverAfter: "1h"}, Reason: "r"}, "ann", "")
		}
		if o, err := start(); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("before clocks were compared: %+v, %v", o, err)
		}
		if _, err := f.Stop(t.Context(), "1", "ann", ""); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("a stop before clocks were compared: %v", err)
		}
		compared = true
		if o, err := start(); err != nil || o.Started != time.Now().UnixMilli() {
			t.Errorf("after it: %+v, %v", o, err)
		}
	})
}
