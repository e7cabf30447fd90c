package broker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/google/go-cmp/cmp"
)

func TestReading_listsWhatIsNotReadInABoundedWay(t *testing.T) {
	r := &ReadingStatus{}
	for partition := range int32(3) {
		r.add("a.delay", partition, StateForbidden, ErrSourceForbidden)
	}
	r.add("a.delay", 3, StateFailing, errors.New("corrupt"))
	r.add("b.delay", 0, StateStart, errNoStart)
	want := []UnreadStatus{
		{"a.delay", []int32{0, 1, 2}, StateForbidden, "access denied: allow Read and Describe"},
		{"a.delay", []int32{3}, StateFailing, "corrupt"},
		{"b.delay", []int32{0}, StateStart, errNoStart.Error()},
	}
	if diff := cmp.Diff(want, r.Unread); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := r.problem(), "not read: a.delay/0,1,2 (forbidden: access denied: allow Read and Describe), a.delay/3 (failing: corrupt)"; got != want {
		t.Errorf("problem %q, want %q", got, want)
	}
	for i := range 5000 {
		r.add(fmt.Sprintf("t%d.delay", i), 0, StateForbidden, ErrSourceForbidden)
	}
	if len(r.Unread) != mostUnread || len(r.problem()) > 2000 {
		t.Errorf("%d entries, problem of %d bytes", len(r.Unread), len(r.problem()))
	}
}

func TestLoss_isAProblemForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l loss
		if l.problem() != "" {
			t.Error("nothing is lost yet")
		}
		for range 2 {
			l.note(move{PositionSet: raftfsm.PositionSet{Position: storage.Position{Topic: "a.delay", Next: 12}, From: 5}})
		}
		want := "14 records were deleted by Kafka within the last hour or so before they could be read, of a.delay/0: raise the retention of the delay topics"
		if got := l.problem(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(lossShown)
		if got := l.problem(); got != "" {
			t.Errorf("an hour later: %q", got)
		}
	})
}
