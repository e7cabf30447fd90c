package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A message with an id of its own, of which the log of a run in which all was well tells beside the others.
const chosen = 5000

// withID has a message with an id accepted, which is due after all claims.
func (l *Ledger) withID(seq uint64, expires int64) Message {
	r := Record{Identity: Identity{Origin: fmt.Sprintf("in.delay/0/%d", seq), Value: "chosen"}, Topic: "in.delay", At: after(10), Target: "orders", Due: after(3e7).UnixMilli()}
	l.Records = append(l.Records, r)
	m := Message{Identity: r.Identity, Target: "orders", Due: r.Due, Seq: seq}
	l.Log.Accept(Acceptance{Message: m, Index: 7000, ID: ID{"in.delay", "a"}, Expires: expires})
	return m
}

func TestJudge_acceptsWhatTheLogHasEnded(t *testing.T) {
	for name, change := range map[string]func(l *Ledger){
		"cancelled": func(l *Ledger) {
			l.withID(chosen, 0)
			l.Log.End(chosen, 7001)
		},
		"cancelled, and the id used again": func(l *Ledger) {
			l.withID(chosen, 0)
			l.Log.End(chosen, 7001)
			l.Pending = append(l.Pending, l.withID(chosen+1, 0))
		},
		"expired, and the id used again before anybody gave it up": func(l *Ledger) {
			l.withID(chosen, after(20).UnixMilli())
			l.Log.Time(after(21).UnixMilli())
			l.Pending = append(l.Pending, l.withID(chosen+1, 0))
			l.Log.Expire(chosen, 7002)
		},
		"expired while Kafka left it without an answer, and written behind what was due later": func(l *Ledger) {
			_, d := l.at(100)
			l.late("orders", 100, 101, 1100*time.Millisecond)
			l.Deliveries[200], l.Deliveries[202] = l.Deliveries[202], l.Deliveries[200]
			expired := l.Log.Accepted[d.Seq]
			expired.Expires = after(100.5).UnixMilli()
			l.Log.Accepted[d.Seq] = expired
			l.Log.Time(after(100.6).UnixMilli())
			l.Log.Expire(d.Seq, 7001)
		},
		"refused by its condition": func(l *Ledger) {
			m := l.withID(chosen, 0)
			l.Log.End(chosen, 7001)
			m.Origin = "in.delay/0/9001"
			l.Records = append(l.Records, Record{Identity: m.Identity, Topic: "in.delay", At: after(10), Target: "orders", Due: m.Due})
			l.Log.Refuse(m.Identity)
		},
		"a record that cancels": func(l *Ledger) {
			l.Records = append(l.Records, Record{Identity: Identity{Origin: "in.delay/0/9002"}, Topic: "in.delay", At: after(10)})
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

func TestJudge_findsWhatBreaksTheRulesOfIDs(t *testing.T) {
	for _, c := range []struct {
		name, check, says string
		change            func(l *Ledger)
	}{
		{"one that was cancelled and came", "ended", "was ended by log entry 7001 and delivered", func(l *Ledger) {
			l.Log.End(l.Deliveries[200].Seq, 7001)
		}},
		{"one that was ended behind its claim", "ended", "a claim had let it go", func(l *Ledger) {
			m := l.withID(chosen, 0)
			l.Log.Claim(Claim{Index: 7001, At: after(900), Through: m.Due})
			l.Log.End(chosen, 7002)
		}},
		{"two that wait", "ended", "another one of its id", func(l *Ledger) {
			l.withID(chosen, 0)
			l.Pending = append(l.Pending, l.withID(chosen+1, 0))
		}},
		{"one that was given up too early", "ended", "before it expired", func(l *Ledger) {
			l.withID(chosen, after(20).UnixMilli())
			l.Log.Time(after(19).UnixMilli())
			l.Log.Expire(chosen, 7001)
		}},
		{"one that was sent when it had expired", "expired", "expired", func(l *Ledger) {
			m := l.withID(chosen, after(20).UnixMilli())
			l.Log.Send(Sending{Seq: chosen, Node: "n", At: after(21)})
			l.Pending = append(l.Pending, m)
		}},
		{"one that the log refused and that is nowhere else, but another", "lost", "in.delay/0/9001", func(l *Ledger) {
			m := l.withID(chosen, 0)
			l.Pending = append(l.Pending, m)
			l.Log.Refuse(m.Identity)
			m.Origin = "in.delay/0/9001"
			l.Records = append(l.Records, Record{Identity: m.Identity, Topic: "in.delay", At: after(10), Target: "orders", Due: m.Due})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := wellKept()
			c.change(l)
			problems := l.Judge()
			if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Check == c.check && strings.Contains(p.Text, c.says) }) {
				t.Errorf("want %s that says %q, got %v", c.check, c.says, problems)
			}
		})
	}
}
