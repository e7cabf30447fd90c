package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

// wellKept is a run of ten minutes in which n led and all went well: each second a record for
// orders, due two seconds later, and one for bills.
func wellKept() *Ledger {
	l := &Ledger{
		Begin: begin, Quiet: after(600), End: after(700),
		Heartbeat: 300 * time.Millisecond, Discovery: 900 * time.Millisecond,
		MissingTimeout: 5 * time.Minute, LongestMissingTimeout: 5 * time.Minute, DeadLetters: "dead",
		Terms: []Term{{Node: "n", Begin: after(1)}},
		Costs: Costs{Handed: 2048, Page: 2048, Nodes: 3},
		Marks: Marks{Main: Mark{Due: after(601).UnixMilli()}, Holds: map[string]Mark{}},
	}
	for i := range 600 {
		for j, target := range []string{"orders", "bills"} {
			seq := uint64(2*i + j + 1)
			id := Identity{fmt.Sprintf("in.delay/0/%d", seq), fmt.Sprint("v", seq)}
			due := after(float64(i) + 2)
			l.Records = append(l.Records, Record{Identity: id, Topic: "in.delay", At: after(float64(i)), Target: target, Due: due.UnixMilli()})
			l.Deliveries = append(l.Deliveries, Delivery{Identity: id, Topic: target, Offset: int64(i), At: due, Due: due.UnixMilli(), Seq: seq})
		}
	}
	l.tellLog()
	return l
}

// tellLog has the log say that each record was accepted at once and claimed 100 ms before it was due.
func (l *Ledger) tellLog() {
	for i := range l.Records {
		r := &l.Records[i]
		m := Message{Identity: r.Identity, Target: r.Target, Due: r.Due, Seq: uint64(i + 1)}
		l.Log.Accept(Acceptance{Message: m, Index: uint64(10 * (i/2 + 1))})
	}
	for i := range 700 {
		l.Log.Claim(Claim{Index: uint64(10*i + 5), At: after(float64(i) - 0.1), Through: after(float64(i)).UnixMilli()})
	}
}

// knowLess has the log tell only that all was claimed early, and nothing of what was accepted.
func (l *Ledger) knowLess() {
	l.Log = Log{Claims: []Claim{{Index: 1, At: begin, Through: after(700).UnixMilli()}}}
}

// compare has n, m and o compare their clocks.
func (l *Ledger) compare() {
	l.MaxSkew = 500 * time.Millisecond
	for _, node := range []string{"n", "m", "o"} {
		l.Clocks = append(l.Clocks, Clock{Node: node, At: begin})
	}
}

// at returns the record of that second for orders and its delivery.
func (l *Ledger) at(second int) (*Record, *Delivery) {
	return &l.Records[2*second], &l.Deliveries[2*second]
}

func (l *Ledger) drop(second int) { l.Deliveries = slices.Delete(l.Deliveries, 2*second, 2*second+1) }

func (l *Ledger) fault(kind, topic string, from, until float64) {
	l.Faults = append(l.Faults, Fault{Kind: kind, Topic: topic, From: after(from), Until: after(until)})
}

// late has what is due in orders between two seconds delivered that much later.
func (l *Ledger) late(target string, from, to int, by time.Duration) {
	for i := range l.Deliveries {
		if d := &l.Deliveries[i]; d.Topic == target && i >= 2*from && i < 2*to {
			d.At = d.At.Add(by)
		}
	}
}

// held has what is due in the target between two seconds delivered all at once.
func (l *Ledger) held(target string, from, to int, at float64) {
	for i := range l.Deliveries {
		if d := &l.Deliveries[i]; d.Topic == target && i >= 2*from && i < 2*to && d.At.Before(after(at)) {
			d.At = after(at)
		}
	}
}

func (l *Ledger) again(second int, at float64) *Delivery {
	_, d := l.at(second)
	copied := *d
	copied.At, copied.Offset = after(at), 10_000
	l.Deliveries = append(l.Deliveries, copied)
	return &l.Deliveries[len(l.Deliveries)-1]
}

// A hold that began before anything was accepted ends like all others.
func TestMarked_endsHoldsFromBeforeTheFirstMessage(t *testing.T) {
	var l Log
	l.Marked(1, after(1), Mark{}, []Hold{{Target: "orders"}})
	l.Accept(Acceptance{Message: Message{Target: "orders", Due: after(9).UnixMilli(), Seq: 1}, Index: 2})
	l.Marked(3, after(3), Mark{}, nil)
	if len(l.Held) != 1 || !l.Held[0].Until.Equal(after(3)) {
		t.Errorf("held %+v", l.Held)
	}
}
