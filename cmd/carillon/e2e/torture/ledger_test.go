package torture_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/cmd/carillon/e2e/torture"
)

// A history is a ledger and the moment from which its times count.
type history struct {
	*torture.Ledger
	start time.Time
}

func newHistory() *history {
	return &history{Ledger: torture.NewLedger(), start: time.UnixMilli(1_800_000_000_000)}
}

func (h *history) at(ms int64) time.Time { return h.start.Add(time.Duration(ms) * time.Millisecond) }

// ask enters a message that Kafka took at once, at 0, due at so many milliseconds.
func (h *history) ask(number int, due int64) {
	h.Sent(torture.Message{Number: number, Due: h.at(due).UnixMilli(), Topic: "orders", Fate: torture.Delivered, Timely: true}, h.at(0))
	h.Taken(number, origin(number), nil, h.at(0))
}

func origin(number int) string { return fmt.Sprintf("orders.delay/0/%d", number) }

// copyOf is the first copy of a message as it should be, written and read at that moment.
func (h *history) copyOf(number int, due, at int64) torture.Copy {
	return torture.Copy{
		Topic: "orders", Offset: int64(number), Written: h.at(at).UnixMilli(), Came: h.at(at),
		Number: number, Origin: origin(number), Seq: fmt.Sprintf("c/%d", number), Due: h.at(due).UnixMilli(),
	}
}

func TestLedger_countsEachFate(t *testing.T) {
	h := newHistory()
	h.ask(1, 1000)
	h.Enter(h.copyOf(1, 1000, 1000))
	h.Enter(h.copyOf(1, 1000, 1000)) // read again
	h.ask(2, 1_000_000)
	h.Sent(torture.Message{Number: 3, Due: h.at(0).UnixMilli(), Topic: "dead", Fate: torture.DeadLettered}, h.at(0))
	h.Taken(3, origin(3), nil, h.at(0))
	h.Enter(torture.Copy{Topic: "dead", Number: 3, Origin: origin(3), Written: h.at(500).UnixMilli(), Came: h.at(500)})
	if overdue, later := h.Open(h.at(5000)); overdue != 0 || later != 1 {
		t.Errorf("%d overdue, %d later", overdue, later)
	}
	s := h.Close(h.at(5000))
	if s.Produced != 3 || s.Delivered != 1 || s.DeadLettered != 1 || s.Later != 1 || s.Duplicates != 0 || len(s.Problems) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestLedger_findsWhatMustNotBe(t *testing.T) {
	for _, test := range []struct {
		name, want string
		change     func(*history, torture.Copy)
		count      func(torture.Sums) int
	}{
		{"lost", "is lost", func(*history, torture.Copy) {}, func(s torture.Sums) int { return s.Lost }},
		{"early", "1 ms early", func(h *history, c torture.Copy) { c.Written--; h.Enter(c) }, func(s torture.Sums) int { return s.Early }},
		{"taken in twice", "as c/1 and c/9", func(h *history, c torture.Copy) {
			h.Enter(c)
			c.Offset, c.Seq = 9, "c/9"
			h.Enter(c)
		}, func(s torture.Sums) int { return s.Twice }},
		{"one seq for two", "both delivered as c/1", func(h *history, c torture.Copy) {
			h.Enter(c)
			h.ask(2, 1000)
			other := h.copyOf(2, 1000, 1000)
			other.Seq = c.Seq
			h.Enter(other)
		}, func(s torture.Sums) int { return s.Twice }},
		{"another record", "came as orders.delay/0/9", func(h *history, c torture.Copy) { c.Origin = origin(9); h.Enter(c) }, func(s torture.Sums) int { return s.Twice }},
		{"wrong fate", "came to dead", func(h *history, c torture.Copy) { c.Topic = "dead"; h.Enter(c) }, func(s torture.Sums) int { return s.TwoFates }},
		{"second fate", "came to orders and dead", func(h *history, c torture.Copy) {
			h.Enter(c)
			c.Topic = "dead"
			h.Enter(c)
		}, func(s torture.Sums) int { return s.TwoFates }},
		{"another time", "was delivered for", func(h *history, c torture.Copy) { c.Due--; h.Enter(c) }, nil},
		{"nobody sent", "which nobody sent", func(h *history, c torture.Copy) {
			h.Enter(c)
			h.Enter(h.copyOf(8, 0, 0))
		}, nil},
		{"not produced", "was not produced", func(h *history, c torture.Copy) {
			h.Enter(c)
			h.Taken(1, "", errors.New("refused"), h.at(0)) // one in a thousand may, and this is the only one
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory()
			h.ask(1, 1000)
			test.change(h, h.copyOf(1, 1000, 1000))
			s := h.Close(h.at(5000))
			if len(s.Problems) != 1 || !strings.Contains(s.Problems[0], test.want) || test.count != nil && test.count(s) != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Of one in a thousand nobody may know whether Kafka has it: then it comes or not, and all else holds.
func TestLedger_letsARecordBeInDoubt(t *testing.T) {
	for name, enter := range map[string]func(*history, torture.Copy) int{
		"and it does not come": func(*history, torture.Copy) int { return 1 },
		"and it comes":         func(h *history, c torture.Copy) int { h.Enter(c); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			for number := range 1000 {
				h.ask(number, 1000)
				h.Enter(h.copyOf(number, 1000, 1000))
			}
			h.Sent(torture.Message{Number: 1000, Due: h.at(1000).UnixMilli(), Topic: "orders", Fate: torture.Delivered, Timely: true}, h.at(0))
			h.Taken(1000, "", errors.New("connection closed"), h.at(0))
			want := enter(h, h.copyOf(1000, 1000, 1000))
			if overdue, later := h.Open(h.at(5000)); overdue != 0 || later != 0 {
				t.Errorf("%d overdue, %d later", overdue, later)
			}
			if s := h.Close(h.at(5000)); s.InDoubt != want || len(s.Problems) != 0 {
				t.Errorf("%d in doubt, want %d: %v", s.InDoubt, want, s.Problems)
			}
		})
	}
}

func TestLedger_countsOrderOnlyAmongWhatWasAcceptedBefore(t *testing.T) {
	for _, test := range []struct {
		name     string
		accepted int64 // when a message that was accepted after both was written
		want     int
	}{{"both accepted long before", 100, 1}, {"accepted nobody knows when", 5000, 0}} {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory()
			h.ask(1, 2000)
			h.ask(2, 1000)
			h.ask(3, 0)
			h.Enter(h.copyOf(1, 2000, 2000)) // offsets are numbers: 1 before 2
			h.Enter(h.copyOf(2, 1000, 2001))
			other := h.copyOf(3, 0, test.accepted)
			other.Topic = "orders"
			other.Partition = 1
			h.Enter(other)
			if s := h.Close(h.at(9000)); s.Disordered != test.want {
				t.Errorf("%d out of order, want %d", s.Disordered, test.want)
			}
		})
	}
}

func TestLedger_isCalmWhenAllCameOnTime(t *testing.T) {
	h := newHistory()
	calm := func(ms int64) bool { return h.Calm(h.at(-200), h.at(ms), torture.OnTime) }
	if calm(0) {
		t.Error("calm before anything came")
	}
	h.ask(1, 1000)
	h.ask(2, 1000)
	h.Enter(h.copyOf(1, 1000, 1100))
	if calm(1200) {
		t.Error("calm before what a fault has held up can be late")
	}
	if !calm(1400) || calm(1600) {
		t.Error("a message is late from half a second on")
	}
	h.Enter(h.copyOf(2, 1000, 1700))
	h.ask(3, 2500)
	h.Enter(h.copyOf(3, 2500, 2500))
	if calm(2600) || !calm(2800) {
		t.Error("it is calm a second after the last late one")
	}
	if calm(3600) {
		t.Error("calm while nothing comes")
	}
}
