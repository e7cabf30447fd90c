package raftfsm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/raft"
)

// The table of resolve.go, row by row. Message 7 is the newest.
func TestResolve_answersAsTheTableSays(t *testing.T) {
	pending := standing{pending: storage.Found{Ref: storage.Ref{Due: 50, Seq: 7}, Target: "orders"}}
	onWay := standing{onWay: 7}
	cancelled := standing{onWay: 3, ended: outcomes.Outcome{Kind: outcomes.Cancelled, Seq: 7, At: 40}}
	delivered := standing{ended: outcomes.Outcome{Kind: outcomes.Delivered, Seq: 7, At: 40, Offset: 12}}
	unknown := standing{}
	conflict, none := Answer{Code: Conflict, Seq: 7}, Answer{Code: Conflict}
	superseded := Answer{Code: Superseded, Before: 7}
	late := Answer{Code: TooLate, Seq: 7}
	lateCancelled, lateDelivered := Answer{Code: TooLate, Seq: 7, Outcome: &cancelled.ended}, Answer{Code: TooLate, Seq: 7, Outcome: &delivered.ended}
	already, notFound := Answer{Code: AlreadyCancelled, Seq: 7, Outcome: &cancelled.ended}, Answer{Code: NotFound}
	scheduled := func(before uint64) Answer { return Answer{Code: Scheduled, Before: before} }
	for _, row := range []struct {
		verb Verb
		when Condition
		seq  uint64
		want [5]Answer // pending, on its way, cancelled, delivered, unknown
	}{
		{Schedule, Always, 0, [5]Answer{superseded, scheduled(7), scheduled(3), scheduled(0), scheduled(0)}},
		{Schedule, Absent, 0, [5]Answer{conflict, scheduled(7), scheduled(3), scheduled(0), scheduled(0)}},
		{Schedule, Present, 0, [5]Answer{superseded, none, none, none, none}},
		{Schedule, Exactly, 7, [5]Answer{superseded, none, none, none, none}},
		{Schedule, Exactly, 6, [5]Answer{conflict, none, none, none, none}},
		{Schedule, Exactly, 0, [5]Answer{conflict, none, none, none, none}},
		{Cancel, Always, 0, [5]Answer{{Code: WasCancelled, Seq: 7}, late, already, lateDelivered, notFound}},
		{Cancel, Absent, 0, [5]Answer{conflict, late, already, lateDelivered, notFound}},
		{Cancel, Present, 0, [5]Answer{{Code: WasCancelled, Seq: 7}, late, already, lateDelivered, notFound}},
		{Cancel, Exactly, 7, [5]Answer{{Code: WasCancelled, Seq: 7}, late, already, lateDelivered, notFound}},
		{Cancel, Exactly, 6, [5]Answer{conflict, late, already, lateDelivered, notFound}},
		{Change, Always, 0, [5]Answer{superseded, late, lateCancelled, lateDelivered, notFound}},
		{Change, Absent, 0, [5]Answer{conflict, late, lateCancelled, lateDelivered, notFound}},
		{Change, Present, 0, [5]Answer{superseded, late, lateCancelled, lateDelivered, notFound}},
		{Change, Exactly, 7, [5]Answer{superseded, late, lateCancelled, lateDelivered, notFound}},
		{Change, Exactly, 8, [5]Answer{conflict, late, lateCancelled, lateDelivered, notFound}},
	} {
		for i, s := range []standing{pending, onWay, cancelled, delivered, unknown} {
			o := Operation{Verb: row.verb, If: row.when, Seq: row.seq}
			if diff := cmp.Diff(row.want[i], o.resolve(&s)); diff != "" {
				t.Errorf("verb %d, condition %d of %d, standing %+v (-want +got):\n%s", row.verb, row.when, row.seq, s, diff)
			}
		}
	}
}

// newTestIDs returns an FSM of LevelThree whose ids are open, with the claim through 100.
func newTestIDs(t testing.TB) *FSM {
	t.Helper()
	f := newTestFSM(t)
	f.cfg.Understands = storage.LevelThree
	apply(t, f, RaiseLevel{Level: storage.LevelThree})
	apply(t, f, OpenIDs{})
	knownPosition(t, f, 0)
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 100}})
	return f
}

func scheduleOf(id string, due int64) Operation {
	return Operation{Verb: Schedule, Entry: storage.Entry{Due: due, Target: "a", Topic: "a.delay", ID: id, Body: []byte("x")}}
}

func cancelOf(id string) Operation {
	return Operation{Verb: Cancel, Entry: storage.Entry{Topic: "a.delay", ID: id}}
}

// operate gives the FSM operations at a time, and returns the answers.
func operate(t testing.TB, f *FSM, time int64, operations ...Operation) []Answer {
	t.Helper()
	res := apply(t, f, Operate{Time: time, Operations: operations})
	if len(res.Answers) != 1 {
		t.Fatalf("%d slices of answers, want one", len(res.Answers))
	}
	return res.Answers[0]
}

func checkAnswers(t testing.TB, got []Answer, want ...Answer) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Answer{}, "Outcome")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOperate_seesWhatCameBeforeInTheSameCommand(t *testing.T) {
	f := newTestIDs(t)
	feed := f.Subscribe(100)
	got := operate(t, f, 10, scheduleOf("x", 500), Operation{Verb: Schedule, Entry: storage.Entry{Due: 9, Target: "a"}},
		scheduleOf("x", 600), cancelOf("x"), cancelOf("x"), scheduleOf("x", 700))
	checkAnswers(t, got, Answer{Code: Scheduled, Seq: 1}, Answer{Code: Scheduled, Seq: 2}, Answer{Code: Superseded, Seq: 3, Before: 1},
		Answer{Code: WasCancelled, Seq: 3}, Answer{Code: AlreadyCancelled, Seq: 3}, Answer{Code: Scheduled, Seq: 4})
	if f.store.Pending() != 2 || !f.store.Alive(2) || !f.store.Alive(4) {
		t.Errorf("%d are pending, want messages 2 and 4", f.store.Pending())
	}
	events, _, _ := feed.Take(nil)
	item := func(seq uint64, due int64, topic string, size int) storage.Item {
		return storage.Item{Ref: storage.Ref{Due: due, Seq: seq}, Target: "a", Topic: topic, Size: size}
	}
	want := []Event{{Index: f.applied, Killed: []storage.SeqRun{{First: 1, Last: 1}, {First: 3, Last: 3}},
		Accepted: []storage.Item{item(1, 500, "a.delay", 1), item(2, 9, "", 0), item(3, 600, "a.delay", 1), item(4, 700, "a.delay", 1)},
		Claim:    &storage.Claim{Through: 100, Fresh: storage.Ref{Due: 9, Seq: 2}}}}
	if diff := cmp.Diff(want, events, cmpopts.IgnoreFields(Event{}, "Claim")); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	wantLife := []outcomes.Outcome{
		{Name: name.Of("a.delay", "x"), Kind: outcomes.Replaced, Seq: 1, By: 3, Due: 500, At: 10, Target: "a"},
		{Name: name.Of("a.delay", "x"), Kind: outcomes.Cancelled, Seq: 3, Due: 600, At: 10, Target: "a"},
	}
	if diff := cmp.Diff(wantLife, f.store.Life("a.delay", "x")); diff != "" {
		t.Errorf("life (-want +got):\n%s", diff)
	}
}

func TestIngest_answersPartsWithIDsOnly(t *testing.T) {
	f := newTestIDs(t)
	plain := Operation{Verb: Schedule, Entry: storage.Entry{Due: 200, Target: "a"}}
	part := func(from int64, operations ...Operation) Part {
		return Part{TopicID: topicID, Topic: "a.delay", From: from, Next: from + 1, Operations: operations}
	}
	res := apply(t, f, Ingest{Time: 1, Parts: []Part{part(0, plain, plain), part(9, scheduleOf("late", 200)), part(1, plain, scheduleOf("x", 300))}})
	want := [][]Answer{nil, nil, {{Code: Scheduled, Seq: 3}, {Code: Scheduled, Seq: 4}}}
	if diff := cmp.Diff(want, res.Answers); diff != "" || res.FirstSeq != 1 || res.Accepted != 4 {
		t.Errorf("%d from seq %d, answers (-want +got):\n%s", res.Accepted, res.FirstSeq, diff)
	}
	if res := apply(t, f, Ingest{Time: 1, Parts: []Part{part(2, plain)}}); res.Answers != nil {
		t.Errorf("answers %v to nobody", res.Answers)
	}
	e, err := f.store.Read([]storage.Ref{{Due: 200, Seq: 1}}, nil)
	if err != nil || len(e) != 1 || e[0].Topic != "a.delay" {
		t.Errorf("a message without an id has the topic %+v, %v", e, err)
	}
}

// What is claimed goes out: its id is free, and nothing can be done about it any more.
func TestOperate_claimedMessageHasGivenUpItsID(t *testing.T) {
	f := newTestIDs(t)
	absent := scheduleOf("x", 300)
	absent.If = Absent
	checkAnswers(t, operate(t, f, 10, scheduleOf("x", 200), absent), Answer{Code: Scheduled, Seq: 1}, Answer{Code: Conflict, Seq: 1})
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 200}})
	change := scheduleOf("x", 900)
	change.Verb = Change
	checkAnswers(t, operate(t, f, 11, cancelOf("x"), change, absent, cancelOf("x")),
		Answer{Code: TooLate, Seq: 1}, Answer{Code: TooLate, Seq: 1}, Answer{Code: Scheduled, Seq: 2, Before: 1}, Answer{Code: WasCancelled, Seq: 2})
	checkAnswers(t, operate(t, f, 12, cancelOf("x"), scheduleOf("x", 400)), Answer{Code: AlreadyCancelled, Seq: 2}, Answer{Code: Scheduled, Seq: 3, Before: 1})
	if !f.store.Alive(1) {
		t.Error("what was claimed is dead")
	}
	// What is accepted due by now is claimed from its birth.
	checkAnswers(t, operate(t, f, 13, scheduleOf("y", 200), cancelOf("y")), Answer{Code: Scheduled, Seq: 4}, Answer{Code: TooLate, Seq: 4})
}

// A held target has a claim of its own, which neither holding nor lifting takes back; so has a
// delay topic.
func TestOperate_heldTargetHasItsOwnClaim(t *testing.T) {
	f := newTestIDs(t)
	hold := func(through int64) storage.ClaimChange {
		return storage.ClaimChange{Set: []storage.Hold{{Target: "a", Through: through}}}
	}
	operate(t, f, 10, scheduleOf("before", 90), scheduleOf("after", 150), scheduleOf("later", 190))
	apply(t, f, ChangeClaim{ClaimChange: hold(50)}) // was claimed through 100 before its proposer saw it
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 200}})
	checkAnswers(t, operate(t, f, 11, cancelOf("before"), cancelOf("after")), Answer{Code: TooLate, Seq: 1}, Answer{Code: WasCancelled, Seq: 2})
	for _, change := range []Command{ChangeClaim{ClaimChange: hold(190)}, ChangeClaim{ClaimChange: hold(0)}, ChangeClaim{ClaimChange: storage.ClaimChange{Lift: []string{"a"}}},
		ChangeClaim{ClaimChange: hold(0)}, ClaimCommand{}, Pause{Kind: pause.Target, Name: "a"}, Pause{Kind: pause.Topic, Name: "a.delay"}} {
		apply(t, f, change)
		checkAnswers(t, operate(t, f, 12, cancelOf("later")), Answer{Code: TooLate, Seq: 3})
	}
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 400}})
	checkAnswers(t, operate(t, f, 13, scheduleOf("paused", 300), cancelOf("paused")), Answer{Code: Scheduled, Seq: 4}, Answer{Code: WasCancelled, Seq: 4})
}

// Whoever is refused, or calls with keys, again and again has neither an outcome nor an answer of others forgotten.
func TestOperate_remembersOthersWhoeverIsRefused(t *testing.T) {
	f := newTestSeqs(t)
	apply(t, f, KeepOutcomes{Time: 5, Keep: outcomes.Keep{For: 1000, Count: 20}})
	operate(t, f, 10, scheduleOf("x", 500), cancelOf("x"), once("mine", 1, scheduleOf("", 500)))
	conflict := scheduleOf("busy", 500)
	conflict.If = Present
	for i := range 200 {
		operate(t, f, int64(11+i), conflict, once("same", 1, scheduleOf("", 500)))
	}
	for i := range 9 {
		operate(t, f, int64(300+i), once("key "+strconv.Itoa(i), 1, conflict))
	}
	want := outcomes.Outcome{Name: name.Of("a.delay", "x"), Kind: outcomes.Cancelled, Seq: 1, Due: 500, At: 10, Target: "a"}
	checkAnswers(t, operate(t, f, 400, cancelOf("x"), once("mine", 1, scheduleOf("", 500)), cancelOf("nobody")),
		Answer{Code: AlreadyCancelled, Seq: 1, Outcome: &want}, Answer{Code: Scheduled, Seq: 2, Again: true}, Answer{Code: NotFound})
}

// What refused a record says which one it was; a call has none.
func TestIngest_keepsWhichRecordWasRefused(t *testing.T) {
	f := newTestIDs(t)
	f.cfg.Understands = storage.LevelFour
	apply(t, f, RaiseLevel{Level: storage.LevelFour})
	present := scheduleOf("x", 500)
	present.If = Present
	operate(t, f, 10, present)
	told := present
	told.Record = 3
	apply(t, f, Ingest{Time: 11, Parts: []Part{{TopicID: topicID, Topic: "a.delay", From: 0, Next: 5, Operations: []Operation{present, told}}}})
	refused := outcomes.Outcome{Name: name.Of("a.delay", "x"), Kind: outcomes.Refused, Due: 500, At: 10, Target: "a"}
	untold, record := refused, refused
	untold.At, record.At = 11, 11
	record.Kind, record.Offset = outcomes.RefusedRecord, 2
	if diff := cmp.Diff([]outcomes.Outcome{refused, untold, record}, f.store.Life("a.delay", "x")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	checkAnswers(t, operate(t, f, 12, cancelOf("x")), Answer{Code: NotFound})
}

// A read's entry moves the time and nothing else, and no scheduler is woken by it. What it has let expire no later
// command brings back, whatever its leader's clock says.
func TestOperate_withoutOperationsMovesTheTimeAlone(t *testing.T) {
	f := newTestIDs(t)
	o := scheduleOf("x", 500)
	o.Entry.Expires = 600
	operate(t, f, 10, o)
	f.store.Pause(pause.Pause{Kind: pause.Target, Name: "a"})
	feed := f.Subscribe(10)
	for _, step := range []struct{ at, want int64 }{{599, 599}, {600, 600}, {300, 600}} {
		res := apply(t, f, Operate{Time: step.at})
		if got := f.store.Time(); got != step.want || res.Accepted != 0 || res.Killed != 0 {
			t.Errorf("at %d: the time is %d, want %d; %+v", step.at, got, step.want, res)
		}
	}
	if events, _, _ := feed.Take(nil); len(events) != 0 {
		t.Errorf("the scheduler hears of %+v", events)
	}
	got := operate(t, f, 300, cancelOf("x"))
	checkAnswers(t, got, Answer{Code: TooLate, Seq: 1})
	if got[0].Outcome.Kind != outcomes.Expired || got[0].Outcome.At != 600 {
		t.Errorf("outcome %+v", got[0].Outcome)
	}
	if events, _, _ := feed.Take(nil); len(events) != 1 {
		t.Errorf("of a command with operations the scheduler hears %d events", len(events))
	}
}

func TestOperate_expiredMessageHasEndedThoughItIsAlive(t *testing.T) {
	f := newTestIDs(t)
	o := scheduleOf("x", 500)
	o.Entry.Expires = 600
	operate(t, f, 599, o)
	present := scheduleOf("x", 700)
	present.If = Present
	got := operate(t, f, 600, present, cancelOf("x"))
	checkAnswers(t, got, Answer{Code: Conflict}, Answer{Code: TooLate, Seq: 1})
	want := outcomes.Outcome{Name: name.Of("a.delay", "x"), Kind: outcomes.Expired, Seq: 1, Due: 500, At: 600, Target: "a"}
	if diff := cmp.Diff(&want, got[1].Outcome); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	checkAnswers(t, operate(t, f, 1, scheduleOf("x", 700)), Answer{Code: Scheduled, Seq: 2}) // time does not go back
	apply(t, f, Ack{Time: 601, Runs: killed(1, 1), Ended: []Ended{want}})
	checkAnswers(t, operate(t, f, 601, cancelOf("x")), Answer{Code: WasCancelled, Seq: 2})
}

func TestAck_keepsTheFirstEndOnly(t *testing.T) {
	f := newTestIDs(t)
	operate(t, f, 10, scheduleOf("x", 50), scheduleOf("y", 500))
	delivered := outcomes.Outcome{Name: name.Of("a.delay", "x"), Kind: outcomes.Delivered, Seq: 1, Due: 50, At: 60, Target: "a", Partition: 2, Offset: 7}
	apply(t, f, Ack{Time: 61, Runs: killed(1, 1), Ended: []Ended{delivered}})
	again := delivered
	again.Offset = 8
	apply(t, f, Ack{Time: 62, Runs: killed(1, 1), Ended: []Ended{again}})
	apply(t, f, Replace{Time: 62, Kills: []uint64{1}, Entries: []storage.Entry{{Target: "dead"}}, Ended: []Ended{again}})
	if got := operate(t, f, 63, cancelOf("x")); got[0].Code != TooLate || *got[0].Outcome != delivered {
		t.Errorf("got %+v, want too late: %+v", got[0], delivered)
	}
	dead := outcomes.Outcome{Name: name.Of("a.delay", "y"), Kind: outcomes.DeadLettered, Seq: 2, Due: 500, At: 64, Target: "dead", Offset: -1}
	apply(t, f, Replace{Time: 64, Kills: []uint64{2}, Entries: []storage.Entry{{Target: "dead"}}, Ended: []Ended{dead}})
	if got := operate(t, f, 65, cancelOf("y")); got[0].Code != TooLate || *got[0].Outcome != dead {
		t.Errorf("got %+v, want too late: %+v", got[0], dead)
	}
}

func TestOperate_notFoundTellsSinceWhenItWouldBeKnown(t *testing.T) {
	f := newTestIDs(t)
	checkAnswers(t, operate(t, f, 10, cancelOf("x")), Answer{Code: NotFound})
	apply(t, f, KeepOutcomes{Time: 10, Keep: outcomes.Keep{For: 1000, Count: 1}})
	for i := range 3 {
		operate(t, f, 20+int64(i), scheduleOf(fmt.Sprint(i), 500), cancelOf(fmt.Sprint(i)))
	}
	checkAnswers(t, operate(t, f, 30, cancelOf("0"), cancelOf("2")), Answer{Code: NotFound, Since: 22}, Answer{Code: AlreadyCancelled, Seq: 3})
}

// Nothing is known of an operation without an id, and nothing is kept of it.
func TestOperate_withoutAnIDMeetsNothing(t *testing.T) {
	f := newTestIDs(t)
	present := scheduleOf("", 500)
	present.If = Present
	absent := scheduleOf("", 500)
	absent.If = Absent
	checkAnswers(t, operate(t, f, 10, scheduleOf("", 500), present, absent, cancelOf("")),
		Answer{Code: Scheduled, Seq: 1}, Answer{Code: Conflict}, Answer{Code: Scheduled, Seq: 2}, Answer{Code: NotFound})
	if life := f.store.Life("a.delay", ""); len(life) != 0 {
		t.Errorf("kept %+v", life)
	}
}

// newTestSeqs returns newTestIDs, raised to LevelFour.
func newTestSeqs(t testing.TB) *FSM {
	t.Helper()
	f := newTestIDs(t)
	f.cfg.Understands = storage.LevelFour
	apply(t, f, RaiseLevel{Level: storage.LevelFour})
	return f
}

// by returns the operation on the message that is named.
func by(verb Verb, due int64, seq uint64) Operation {
	o := Operation{Verb: verb, Entry: storage.Entry{Topic: "a.delay"}, Of: &storage.Found{Ref: storage.Ref{Due: due, Seq: seq}, Target: "a", Topic: "a.delay"}}
	if verb == Change {
		o.Entry.Due, o.Entry.Target = due+1, "a"
	}
	return o
}

// A message that nobody gave an id is meant by its seq: the rows of the table, but nothing is kept.
func TestOperate_meansAMessageWithoutAnIDByItsSeq(t *testing.T) {
	f := newTestSeqs(t)
	expires := scheduleOf("", 200)
	expires.Entry.Expires = 20
	operate(t, f, 10, scheduleOf("", 200), scheduleOf("", 200), expires, scheduleOf("", 90))
	exactly, other := by(Cancel, 200, 2), by(Cancel, 200, 2)
	exactly.If, exactly.Seq, other.If, other.Seq = Exactly, 2, Exactly, 1
	checkAnswers(t, operate(t, f, 11, by(Cancel, 200, 1), by(Cancel, 200, 1), by(Change, 200, 1), other, exactly, by(Change, 90, 4), by(Cancel, 90, 4)),
		Answer{Code: WasCancelled, Seq: 1}, Answer{Code: NotFound, Since: 11}, Answer{Code: NotFound, Since: 11},
		Answer{Code: Conflict, Seq: 2}, Answer{Code: WasCancelled, Seq: 2}, Answer{Code: TooLate, Seq: 4}, Answer{Code: TooLate, Seq: 4})
	of := by(Change, 200, 3)
	of.Of.Expires = 20
	checkAnswers(t, operate(t, f, 19, of), Answer{Code: Superseded, Seq: 5, Before: 3})
	of = by(Cancel, 201, 5)
	of.Of.Expires = 20
	got := operate(t, f, 20, of)
	checkAnswers(t, got, Answer{Code: TooLate, Seq: 5})
	if got[0].Outcome.Kind != outcomes.Expired || got[0].Outcome.At != 20 {
		t.Errorf("outcome %+v", got[0].Outcome)
	}
	apply(t, f, Pause{Kind: pause.Topic, Name: "a.delay"})
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 300}})
	checkAnswers(t, operate(t, f, 21, by(Cancel, 201, 5), by(Cancel, 300, 99)), Answer{Code: WasCancelled, Seq: 5}, Answer{Code: NotFound, Since: 21})
	if f.store.Pending() != 1 || !f.store.Alive(4) || len(f.store.Life("a.delay", "")) != 0 {
		t.Errorf("%d are pending, %+v is kept", f.store.Pending(), f.store.Life("a.delay", ""))
	}
}

func once(key string, content uint64, o Operation) Operation {
	o.Once = &Once{Key: name.Of("", key), Content: content}
	return o
}

func TestOperate_answersAKeyOnce(t *testing.T) {
	f := newTestSeqs(t)
	conflict := scheduleOf("x", 900)
	conflict.If = Absent
	got := operate(t, f, 10, once("a", 1, scheduleOf("", 500)), once("a", 1, scheduleOf("", 500)), once("a", 2, scheduleOf("", 501)),
		once("b", 1, scheduleOf("x", 500)), once("c", 3, conflict), once("d", 4, cancelOf("nobody")))
	checkAnswers(t, got, Answer{Code: Scheduled, Seq: 1}, Answer{Code: Scheduled, Seq: 1, Again: true}, Answer{Code: KeyReused},
		Answer{Code: Scheduled, Seq: 2}, Answer{Code: Conflict, Seq: 2}, Answer{Code: NotFound})
	// What was answered stays the answer, whatever has come of it since.
	checkAnswers(t, operate(t, f, 11, cancelOf("x"), once("b", 1, scheduleOf("x", 500)), once("c", 3, conflict), once("d", 4, cancelOf("nobody"))),
		Answer{Code: WasCancelled, Seq: 2}, Answer{Code: Scheduled, Seq: 2, Again: true}, Answer{Code: Conflict, Seq: 2, Again: true}, Answer{Code: NotFound, Again: true})
	if f.store.Pending() != 1 {
		t.Errorf("%d are pending, want one", f.store.Pending())
	}
	// It is forgotten as outcomes are.
	apply(t, f, KeepOutcomes{Time: 12, Keep: outcomes.Keep{For: 100, Count: 1000}})
	checkAnswers(t, operate(t, f, 110, once("a", 1, scheduleOf("", 500))), Answer{Code: Scheduled, Seq: 1, Again: true})
	checkAnswers(t, operate(t, f, 111, once("a", 2, scheduleOf("", 500))), Answer{Code: Scheduled, Seq: 3})
}

func replayOf(offset int64, o Operation) Operation {
	o.Replay = &Replay{At: replayed.Partition{TopicID: topicID, Number: 1}, Offset: offset}
	return o
}

func TestOperate_replaysADeadLetterOnce(t *testing.T) {
	f := newTestSeqs(t)
	absent := scheduleOf("x", 900)
	absent.If = Absent
	again := replayOf(7, scheduleOf("", 500))
	again.Replay.Again = true
	checkAnswers(t, operate(t, f, 10, replayOf(7, scheduleOf("", 500)), replayOf(7, scheduleOf("", 500)), replayOf(8, scheduleOf("x", 500)), again),
		Answer{Code: Scheduled, Seq: 1}, Answer{Code: Replayed}, Answer{Code: Scheduled, Seq: 2}, Answer{Code: Scheduled, Seq: 3})
	// What did not come to be scheduled is not marked.
	checkAnswers(t, operate(t, f, 11, replayOf(9, absent), replayOf(9, scheduleOf("y", 500)), replayOf(9, scheduleOf("y", 500))),
		Answer{Code: Conflict, Seq: 2}, Answer{Code: Scheduled, Seq: 4}, Answer{Code: Replayed})
	// Who asks twice with one key hears twice that it was scheduled.
	keyed := once("a", 1, replayOf(10, scheduleOf("", 500)))
	checkAnswers(t, operate(t, f, 12, keyed, keyed, replayOf(10, scheduleOf("", 500))),
		Answer{Code: Scheduled, Seq: 5}, Answer{Code: Scheduled, Seq: 5, Again: true}, Answer{Code: Replayed})
	// Marks below what Kafka has are forgotten.
	last := replayOf(20, scheduleOf("", 500))
	last.Replay.First = 9
	checkAnswers(t, operate(t, f, 13, last, replayOf(9, scheduleOf("", 500)), replayOf(7, scheduleOf("", 500))),
		Answer{Code: Scheduled, Seq: 6}, Answer{Code: Replayed}, Answer{Code: Scheduled, Seq: 7})
	// The same offset of another partition is another dead letter.
	other := replayOf(20, scheduleOf("", 500))
	other.Replay.At.Number = 2
	checkAnswers(t, operate(t, f, 14, other), Answer{Code: Scheduled, Seq: 8})
}

// Whatever bit of a segment is flipped: a node answers as it did, or stops. It never guesses.
func TestOperate_stopsWhenTheDiskCannotTell(t *testing.T) {
	dir := t.TempDir()
	var failure error
	cfg := fsmConfig(1<<20, func(err error) { failure = err })
	cfg.Understands = storage.LevelThree
	f := NewFSM(openStore(t, dir), cfg)
	defer f.store.Close()
	apply(t, f, RaiseLevel{Level: storage.LevelThree})
	apply(t, f, OpenIDs{})
	for i := range 200 {
		operate(t, f, 10, scheduleOf(fmt.Sprint(i), 500))
	}
	flushNow(t, f)
	files, err := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments %v, %v", files, err)
	}
	file, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	flip := func(at int64) {
		var b [1]byte
		if _, err := file.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << (at % 8)
		if _, err := file.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
	}
	found := int64(-1)
	for at := int64(0); at < stat.Size(); at += 41 {
		flip(at)
		for _, id := range []string{"0", "77", "199", "unknown"} {
			s, err := f.standing(&storage.Entry{Topic: "a.delay", ID: id})
			switch n, _ := strconv.Atoi(id); {
			case err != nil:
				found = at
			case id == "unknown" && s != standing{}, id != "unknown" && s.pending.Seq != uint64(n+1):
				t.Errorf("with byte %d flipped %q is %+v", at, id, s)
			}
		}
		flip(at)
	}
	if found < 0 {
		t.Fatal("no flipped bit was noticed")
	}
	flip(found)
	for i := range 200 { // one of them lies there
		data := Operate{Operations: []Operation{scheduleOf("before", 500), cancelOf(fmt.Sprint(i))}}.append(nil)
		if f.Apply(&raft.Log{Index: f.applied + 1, Term: 1, Data: data}); f.broken != nil {
			break
		}
	}
	if failure == nil || !strings.Contains(failure.Error(), "operation 1: look up") || !errors.Is(failure, storage.ErrCorrupt) {
		t.Errorf("stopped with %v", failure)
	}
	if _, err := f.Snapshot(); err == nil {
		t.Error("what was half applied is written")
	}
	if _, applied := f.Apply(&raft.Log{Index: f.applied + 1, Term: 1, Data: samples["found"].append(nil)}).(Result); applied {
		t.Error("went on after an entry that it has half applied")
	}
}
