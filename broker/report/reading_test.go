package report

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReading_listsWhatIsNotReadInABoundedWay(t *testing.T) {
	r := &Reading{}
	denied, noStart := errors.New("access denied"), errors.New("set a start")
	for partition := range int32(3) {
		r.Add("a.delay", partition, StateForbidden, denied)
	}
	r.Add("a.delay", 3, StateFailing, errors.New("corrupt"))
	r.Add("b.delay", 0, StateStart, noStart)
	want := []Unread{
		{"a.delay", []int32{0, 1, 2}, StateForbidden, "access denied"},
		{"a.delay", []int32{3}, StateFailing, "corrupt"},
		{"b.delay", []int32{0}, StateStart, noStart.Error()},
	}
	if diff := cmp.Diff(want, r.Unread); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := r.Problem(), "not read: a.delay/0,1,2 (forbidden: access denied), a.delay/3 (failing: corrupt)"; got != want {
		t.Errorf("problem %q, want %q", got, want)
	}
	for i := range 5000 {
		r.Add(fmt.Sprintf("t%d.delay", i), 0, StateForbidden, denied)
	}
	if len(r.Unread) != mostUnread || len(r.Problem()) > 2000 {
		t.Errorf("%d entries, problem of %d bytes", len(r.Unread), len(r.Problem()))
	}
}
