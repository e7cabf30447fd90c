package storage

import (
	"testing"

	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// What has ended is known for as long as the schedule's own time says, and is part of what all
// nodes must agree on.
func TestOutcomes_areForgottenByTheSchedulesTime(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	before := digest(t, s)
	s.KeepOutcomes(outcomes.Keep{For: 1000, Count: 10})
	kept := digest(t, s)
	s.SetTime(5000)
	timed := digest(t, s)
	s.End(outcomes.Outcome{Name: name.Of("orders.delay", "a"), Kind: outcomes.Cancelled, Seq: 7, Due: 9000, At: 5000, Target: "orders"})
	ended := digest(t, s)
	if before == kept || timed == ended {
		t.Error("the digest does not tell what is kept, or what has ended")
	}
	if o, ok := s.Outcome("orders.delay", "a"); !ok || o.Seq != 7 || o.Target != "orders" || len(s.Life("orders.delay", "a")) != 1 {
		t.Errorf("outcome %+v (%t)", o, ok)
	}
	s.SetTime(6000)
	if _, ok := s.Outcome("orders.delay", "a"); !ok || s.OutcomesSince() != 0 {
		t.Error("it was forgotten after a second, not later")
	}
	s.SetTime(6001)
	if _, ok := s.Outcome("orders.delay", "a"); ok || s.OutcomesSince() != 5001 {
		t.Errorf("it is known (%t) after more than a second; all is known since %d", ok, s.OutcomesSince())
	}
}
