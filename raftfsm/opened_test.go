package raftfsm

import (
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
)

// The entry of a message from before ids does not tell its topic, so whoever hands it over passes
// over the hold of its topic.
func TestOperate_pausedTopicDoesNotHoldWhatIDsWereOpenedWith(t *testing.T) {
	f := newTestFSM(t)
	f.cfg.Understands = storage.LevelThree
	knownPosition(t, f, 0)
	apply(t, f, ingestOf(0, 150))
	apply(t, f, RaiseLevel{Level: storage.LevelThree})
	apply(t, f, OpenIDs{UpTo: 1, Named: []storage.Named{{Ref: storage.Ref{Due: 150, Seq: 1}, Target: "a", Topic: "a.delay", ID: "old"}}})
	operate(t, f, 10, scheduleOf("new", 150))
	apply(t, f, Pause{Kind: pause.Topic, Name: "a.delay"})
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 200}})
	checkAnswers(t, operate(t, f, 11, cancelOf("old"), cancelOf("new")), Answer{Code: TooLate, Seq: 1}, Answer{Code: WasCancelled, Seq: 2})
}

// What has lost its id to a newer message is not meant by it when that has ended, whether its outcome is
// known or forgotten. It is delivered.
func TestOperate_meansTheNewestOfOneIDForGood(t *testing.T) {
	f := newTestFSM(t)
	f.cfg.Understands = storage.LevelThree
	knownPosition(t, f, 0)
	apply(t, f, ingestOf(0, 500, 501, 502))
	apply(t, f, RaiseLevel{Level: storage.LevelThree})
	named := func(seq uint64) storage.Named {
		return storage.Named{Ref: storage.Ref{Due: 499 + int64(seq), Seq: seq}, Target: "a", Topic: "a.delay", ID: "same"}
	}
	apply(t, f, OpenIDs{Named: []storage.Named{named(2), named(1)}})
	apply(t, f, OpenIDs{UpTo: 3, Named: []storage.Named{named(3)}})
	apply(t, f, KeepOutcomes{Keep: outcomes.Keep{For: 1000, Count: 10}})
	checkAnswers(t, operate(t, f, 10, cancelOf("same"), cancelOf("same")), Answer{Code: WasCancelled, Seq: 3}, Answer{Code: AlreadyCancelled, Seq: 3})
	checkAnswers(t, operate(t, f, 2000, cancelOf("same"), scheduleOf("same", 5000), cancelOf("same")),
		Answer{Code: NotFound, Since: 11}, Answer{Code: Scheduled, Seq: 4}, Answer{Code: WasCancelled, Seq: 4})
	if !f.store.Alive(1) || !f.store.Alive(2) {
		t.Error("what has lost its id is not delivered")
	}
}

// What has lost its id can be cancelled by its seq, and what is kept of that is kept of the id.
func TestOperate_cancelsWhatHasLostItsIDByItsSeq(t *testing.T) {
	f := newTestFSM(t)
	knownPosition(t, f, 0)
	apply(t, f, ingestOf(0, 500, 501, 502))
	apply(t, f, RaiseLevel{Level: storage.LevelFour})
	named := func(seq uint64) storage.Named {
		return storage.Named{Ref: storage.Ref{Due: 499 + int64(seq), Seq: seq}, Target: "a", Topic: "a.delay", ID: "same"}
	}
	apply(t, f, OpenIDs{UpTo: 3, Named: []storage.Named{named(1), named(2), named(3)}})
	cancel := func(seq uint64) Operation {
		o := cancelOf("same")
		o.If, o.Seq, o.Of = Exactly, seq, &storage.Found{Ref: named(seq).Ref, Target: "a"}
		return o
	}
	checkAnswers(t, operate(t, f, 10, cancel(2), cancel(2), cancel(3), cancel(2)),
		Answer{Code: WasCancelled, Seq: 2}, Answer{Code: Conflict, Seq: 3}, Answer{Code: WasCancelled, Seq: 3}, Answer{Code: AlreadyCancelled, Seq: 3})
	apply(t, f, ChangeClaim{ClaimChange: storage.ClaimChange{Through: 500}})
	checkAnswers(t, operate(t, f, 11, cancel(1)), Answer{Code: TooLate, Seq: 1})
	var kinds []outcomes.Kind
	for _, o := range f.store.Life("a.delay", "same") {
		kinds = append(kinds, o.Kind)
	}
	if want := []outcomes.Kind{outcomes.Cancelled, outcomes.Refused, outcomes.Cancelled}; !slices.Equal(kinds, want) || f.store.Pending() != 1 {
		t.Errorf("%v is kept, want %v; %d are pending", kinds, want, f.store.Pending())
	}
}

// Of several messages with one id the newest may end while ids are opened. Then the one that waits has the
// id, whether the outcome of the other is known or forgotten.
func TestOperate_meansWhatWaitsWhenIDsAreOpen(t *testing.T) {
	f := newTestFSM(t)
	f.cfg.Understands = storage.LevelThree
	knownPosition(t, f, 0)
	apply(t, f, ingestOf(0, 500, 501))
	apply(t, f, RaiseLevel{Level: storage.LevelThree})
	older := storage.Named{Ref: storage.Ref{Due: 500, Seq: 1}, Target: "a", Topic: "a.delay", ID: "same"}
	delivered := outcomes.Outcome{Name: name.Of("a.delay", "same"), Kind: outcomes.Delivered, Seq: 2, Due: 501, At: 5, Target: "a"}
	apply(t, f, OpenIDs{Named: []storage.Named{older}})
	apply(t, f, Ack{Time: 5, Runs: killed(2, 2), Ended: []Ended{delivered}})
	apply(t, f, OpenIDs{UpTo: 2})
	present := scheduleOf("same", 600)
	present.If = Present
	checkAnswers(t, operate(t, f, 10, present, cancelOf("same")), Answer{Code: Superseded, Seq: 3, Before: 1}, Answer{Code: WasCancelled, Seq: 3})
}
