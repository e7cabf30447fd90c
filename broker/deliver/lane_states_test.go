package deliver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/raftfsm"
)

// While a failure is dealt with nothing comes in that could be sent before what failed, and the end
// of a term is waited for where an answer is on its way that nobody else hears.
func TestStates_hearOnlyWhatTheyActOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := newLane(b.Publisher, "orders")
		l.waiting = append(l.waiting, b.accept("orders", 1, nil)[0].Ref)
		heard := func(s state) (names []string) {
			h := s.hears(l)
			for _, c := range []struct {
				name string
				is   bool
			}{
				{"orders", h.orders != nil},
				{"answers", h.answers != nil},
				{"outcomes", h.outcomes != nil},
				{"acks", h.freed != nil},
				{"the log", h.committed != nil},
				{"the clock", !h.until.IsZero()},
				{"the end of the term", !h.outlastTerm},
			} {
				if c.is {
					names = append(names, c.name)
				}
			}
			return names
		}
		now, done := time.Now(), make(chan struct{})
		for _, test := range []struct {
			state state
			want  []string
		}{
			{&sending{freed: done}, []string{"orders", "answers", "outcomes", "acks", "the clock", "the end of the term"}},
			{newSettling(nil, nil), []string{"outcomes", "the clock", "the end of the term"}},
			{&settling{}, []string{"outcomes", "the end of the term"}}, // given up already
			{&backingOff{until: now}, []string{"the clock", "the end of the term"}},
			{&condemning{done: done}, []string{"the log"}},
			{&draining{until: now}, []string{"outcomes", "the clock"}},
		} {
			if diff := cmp.Diff(test.want, heard(test.state)); diff != "" {
				t.Errorf("%T hears (-want +got):\n%s", test.state, diff)
			}
		}
		b.stop()
	})
}

// The term ends while the log is asked to replace messages by dead letters: before it has answered,
// nobody knows whether they are alive.
func TestCondemning_outlastsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1).refuse = func(Delivery) error { return ErrRecordRefused }
		asked := make(chan struct{})
		answered := false
		b.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			close(asked)
			<-ctx.Done()
			time.Sleep(time.Second)
			answered = true
			return raftfsm.Result{}, ctx.Err()
		}
		b.deliver("orders", 1, nil)
		<-asked
		if err := b.stop(); err != nil || !answered {
			t.Errorf("the term ended with %v; the log had answered: %v", err, answered)
		}
	})
}
