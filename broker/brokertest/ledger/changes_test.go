package ledger

import (
	"strings"
	"testing"
	"time"
)

// changed has the message that withID accepts changed to another target and time, and waiting so.
func (l *Ledger) changed() (before Message, c *Change) {
	before = l.withID(chosen, 0)
	m := before
	m.Seq, m.Number, m.Target, m.Due = chosen+1, 1, "bills", before.Due+1000
	l.Log.Change(chosen, Acceptance{Message: m, Index: 7001, At: after(20), ID: ID{"in.delay", "a"}})
	l.Pending = append(l.Pending, m)
	l.Changes = append(l.Changes, Change{
		ID: ID{"in.delay", "a"}, Number: 1, Target: m.Target, Due: m.Due, From: after(19), To: after(21), Answer: Changed, Seq: m.Seq, Before: chosen,
	})
	return before, &l.Changes[0]
}

// now has what waits delivered at once, by the log and by an answer.
func (l *Ledger) now() *Acceptance {
	before, _ := l.changed()
	m := l.Pending[0]
	m.Seq, m.Due = chosen+2, after(30).UnixMilli()
	a := Acceptance{Message: m, Index: 7002, At: after(30.5), ID: ID{"in.delay", "a"}}
	l.Pending = nil
	l.Deliveries = append(l.Deliveries, Delivery{Identity: before.Identity, Topic: m.Target, Partition: 1, At: after(31), Due: m.Due, Seq: m.Seq, Number: 1})
	l.Changes = append(l.Changes, Change{ID: a.ID, From: after(29.5), To: after(30.6), Answer: Changed, Seq: m.Seq, Before: chosen + 1})
	return &a
}

func TestJudge_acceptsWhatWasChanged(t *testing.T) {
	for name, change := range map[string]func(l *Ledger){
		"once": func(l *Ledger) { l.changed() },
		"and nobody was told": func(l *Ledger) {
			_, c := l.changed()
			c.Answer, c.Seq, c.Before = InDoubt, 0, 0
		},
		"and is delivered at once": func(l *Ledger) { l.Log.Change(chosen+1, *l.now()) },
		"and is delivered at once by the clock as it was before it was set": func(l *Ledger) {
			l.knowLess()
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(29), Offset: time.Minute})
			l.Log.Change(chosen+1, *l.now())
		},
		"and then cancelled": func(l *Ledger) {
			l.changed()
			l.Log.End(chosen+1, 7002)
			l.Pending = nil
		},
		"but for one that nobody has found": func(l *Ledger) {
			l.changed()
			l.Log.Deny(ID{"in.delay", "b"}, 0, 7002)
			l.Log.Deny(ID{"in.delay", "a"}, chosen, 7002)
			l.Changes = append(l.Changes, Change{ID: ID{"in.delay", "b"}, Number: 2, From: after(19), To: after(21), Answer: "not-found"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := wellKept()
			change(l)
			for _, p := range l.Judge() {
				t.Errorf("%s: %s", p.Check, p.Text)
			}
		})
	}
}

func TestJudge_findsWhatIsWrongWithChanges(t *testing.T) {
	for _, c := range []struct {
		name, check, says string
		change            func(l *Ledger)
	}{
		{"told and not done", "changed", "was told to be done", func(l *Ledger) {
			l.Pending = append(l.Pending, l.withID(chosen, 0))
			l.Changes = append(l.Changes, Change{ID: ID{"in.delay", "a"}, Number: 1, From: after(19), To: after(21), Answer: Changed, Seq: chosen + 1, Before: chosen})
		}},
		{"done and refused", "changed", "came by change 1", func(l *Ledger) {
			_, c := l.changed()
			c.Answer = "conflict"
		}},
		{"done twice", "changed", "was done twice", func(l *Ledger) {
			_, c := l.changed()
			c.Answer = InDoubt
			m := l.Pending[0]
			m.Number = 0
			m.Seq = chosen + 2
			l.Log.Change(chosen+1, Acceptance{Message: m, Index: 7002, ID: c.ID})
			m.Number, m.Seq = 1, chosen+3
			l.Log.Change(chosen+2, Acceptance{Message: m, Index: 7003, ID: c.ID})
			l.Pending[0] = m
		}},
		{"to another time", "changed", "due", func(l *Ledger) {
			_, c := l.changed()
			c.Due++
		}},
		{"to another target", "changed", "is for bills", func(l *Ledger) {
			_, c := l.changed()
			c.Target = "orders"
		}},
		{"delivered as it was", "changed", "have given way", func(l *Ledger) {
			before, _ := l.changed()
			l.Deliveries = append(l.Deliveries, Delivery{Identity: before.Identity, Topic: "orders", Partition: 1, At: after(500), Due: before.Due, Seq: chosen})
		}},
		{"delivered with the content before", "changed", "came as change 0 has it", func(l *Ledger) {
			a := l.now()
			l.Log.Change(chosen+1, *a)
			l.Deliveries[len(l.Deliveries)-1].Number = 0
		}},
		{"lost behind the change", "lost", "in.delay/0/5000", func(l *Ledger) {
			l.changed()
			l.Pending = nil
		}},
		{"behind its claim", "ended", "a claim had let it go", func(l *Ledger) {
			m := l.withID(chosen, 0)
			l.Log.Claim(Claim{Index: 7000, At: after(900), Through: m.Due})
			l.Log.Change(chosen, Acceptance{Message: m, Index: 7001, ID: ID{"in.delay", "a"}})
		}},
		{"not found though it waits", "ended", "while it could be ended", func(l *Ledger) {
			l.changed()
			l.Log.Deny(ID{"in.delay", "a"}, chosen+1, 7002)
		}},
		{"told to be on its way, and ended", "changed", "was told to be on its way", func(l *Ledger) {
			_, c := l.changed()
			l.Changes = append(l.Changes, Change{ID: c.ID, Number: 2, From: after(19), To: after(21), Answer: TooLate, Seq: chosen})
		}},
		{"due now, and nobody asked", "changed", "nobody asked for it", func(l *Ledger) {
			a := l.now()
			l.Log.Change(chosen+1, *a)
			l.Changes = l.Changes[:1]
		}},
		{"due now, before anybody asked", "changed", "nobody asked for it", func(l *Ledger) {
			a := l.now()
			a.Due = after(29).UnixMilli()
			l.Log.Change(chosen+1, *a)
			l.Deliveries[len(l.Deliveries)-1].Due = a.Due
		}},
		{"of another record", "changed", "took the place of", func(l *Ledger) {
			a := l.now()
			a.Origin = "in.delay/0/1"
			l.Log.Change(chosen+1, *a)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := wellKept()
			c.change(l)
			for _, p := range l.Judge() {
				if p.Check == c.check && strings.Contains(p.Text, c.says) {
					return
				}
			}
			t.Errorf("no problem of %q says %q: %v", c.check, c.says, l.Judge())
		})
	}
}
