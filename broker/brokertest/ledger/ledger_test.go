package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge_findsNothingWhereAllPromisesAreKept(t *testing.T) {
	for name, change := range map[string]func(l *Ledger){
		"nothing happened": func(*Ledger) {},
		"a kill delays and repeats": func(l *Ledger) {
			l.fault("kill", "", 100, 104)
			l.late("orders", 99, 104, 6*time.Second)
			l.again(97, 106)
			l.Terms[0].Over = after(100)
			l.Terms = append(l.Terms, Term{Node: "m", Begin: after(103)})
		},
		"a target was missing for long": func(l *Ledger) {
			l.fault("missing", "orders", 100, 500)
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(460)
			l.held("orders", 101, 499, 560)
		},
		"Kafka said for long that a target was missing": func(l *Ledger) {
			l.fault("stray", "orders", 100, 250)
			l.fault("stray", "orders", 270, 420) // nobody had asked in between
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(410)
			l.held("orders", 101, 420, 450)
		},
		"a small feed overflowed": func(l *Ledger) {
			l.Costs.Feed, l.Costs.Loaded, l.Costs.Scanned = 9, 100, 19_000
		},
		"a target was read on whenever it had got rid of a few": func(l *Ledger) {
			l.Costs.Handed, l.Costs.Scanned = 16, 100_000
		},
		"targets came back again and again, and pages were small": func(l *Ledger) {
			l.Costs.Page, l.Costs.CatchUps, l.Costs.Scanned = 2, 10_000, 90_000
		},
		"a target took small records only": func(l *Ledger) {
			l.fault("limit", "orders", 100, 110)
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due = "dead", 0, 0
		},
		"a term sent again what it had sent itself, and one that a frozen node began before": func(l *Ledger) {
			_, d := l.at(100)
			l.Log.Ack(d.Seq, after(102.1))
			l.Log.Send(Sending{Seq: d.Seq, Node: "n", At: after(102.2)})
			l.Terms = append(l.Terms, Term{Node: "m", Begin: after(50)})
			l.Log.Send(Sending{Seq: d.Seq, Node: "m", At: after(110)})
		},
		"a target was slow": func(l *Ledger) {
			l.fault("slow", "orders", 100, 200)
			l.held("orders", 100, 200, 220)
			l.late("bills", 100, 103, 5*time.Second)
		},
		"Kafka refused a record that was small": func(l *Ledger) {
			l.fault("refuse", "orders", 90, 100)
			_, d := l.at(97)
			d.Topic, d.Seq, d.Due = "dead", 0, 0
		},
		"idle connections to several brokers are opened anew": func(l *Ledger) {
			l.Costs.Brokers, l.End = 2, after(100_000)
			l.Costs.Dials = 2000
		},
		"what was aborted came not": func(l *Ledger) {
			r, _ := l.at(50)
			r.Aborted = true
			l.drop(50)
		},
		"what is due in a year waits": func(l *Ledger) {
			r, _ := l.at(50)
			r.Due = after(3e7).UnixMilli()
			l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: "orders", Due: r.Due, Seq: 101})
			l.drop(50)
		},
		"a dead letter waited until its topic could be written to, and its target was there again": func(l *Ledger) {
			l.fault("missing", "orders", 100, 450)
			l.fault("forbid", "dead", 390, 700)
			l.fault("forbid", "dead", 705, 800)
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(801)
			l.held("orders", 101, 450, 480)
		},
		"a dead letter waited, since its delay topic was paused, and its target was there again": func(l *Ledger) {
			l.fault("missing", "orders", 100, 450)
			l.End = after(810)
			l.fault("pause", "in.delay", 400, 800)
			r, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(801)
			l.Log.Accept(Acceptance{Message: Message{Identity: r.Identity, Target: "dead", Seq: 5000}, Index: 4001, At: after(405), Letter: true})
			l.held("orders", 101, 450, 480)
		},
		"a message was a dead letter by a command that a leader left to the next when it was frozen": func(l *Ledger) {
			l.fault("missing", "orders", 100, 430)
			l.Faults = append(l.Faults, Fault{Kind: "freeze", Node: "n", From: after(420), Until: after(570)})
			r, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(562)
			l.Log.Accept(Acceptance{Message: Message{Identity: r.Identity, Target: "dead", Seq: 5000}, Index: 4001, At: after(560), Letter: true})
			l.Terms[0].Over = after(570)
			l.Terms = append(l.Terms, Term{Node: "m", Begin: after(561)})
			l.held("orders", 101, 561, 580)
			l.held("bills", 420, 561, 580)
		},
		"a node with a clock that was set long ago gave leadership away": func(l *Ledger) {
			l.MaxSkew = 500 * time.Millisecond
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Offset: 600 * time.Millisecond})
			l.knowLess()
			l.fault("clock", "", 100, 100)
			l.Terms[0].Over, l.Terms[0].Reason = after(400), "leadership was lost"
			l.Terms = append(l.Terms, Term{Node: "m", Begin: after(400)})
		},
		"a clock is ahead": func(l *Ledger) {
			l.knowLess()
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Offset: time.Second})
			l.late("orders", 100, 600, -time.Second)
		},
		"a clock is ahead by what members allow each other": func(l *Ledger) {
			l.knowLess()
			l.compare()
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Offset: time.Hour}, Clock{Node: "m", At: after(100), Offset: 200 * time.Millisecond})
			l.late("orders", 200, 600, -700*time.Millisecond)
		},
		"a clock is ahead and nobody tells": func(l *Ledger) {
			l.knowLess()
			l.compare()
			l.Faults = append(l.Faults, Fault{Kind: "cut", Node: "n", From: after(90), Until: after(600)})
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Offset: time.Minute})
			l.late("orders", 200, 600, -time.Second)
		},
		"a clock is ahead and those of two others as well": func(l *Ledger) {
			l.knowLess()
			l.compare()
			for _, node := range []string{"n", "m"} {
				l.Clocks = append(l.Clocks, Clock{Node: node, At: after(100), Offset: time.Minute})
			}
			l.late("orders", 200, 600, -time.Second)
		},
		"a clock gains, also within the millisecond to which a time is cut": func(l *Ledger) {
			l.knowLess()
			_, d := l.at(100)
			d.At = time.UnixMilli(d.Due - 4)
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: d.At.Add(-time.Second), Drift: 3 * time.Millisecond})
		},
		"a clock gains": func(l *Ledger) {
			l.knowLess()
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Drift: 10 * time.Millisecond})
			l.late("orders", 200, 600, -time.Second)
		},
		"a clock is behind": func(l *Ledger) {
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Offset: -time.Minute})
			l.fault("clock", "", 100, 100)
			l.late("orders", 100, 600, time.Minute)
			l.late("bills", 100, 600, time.Minute)
		},
		"one was accepted when the other was claimed": func(l *Ledger) {
			_, d := l.at(100)
			a := l.Log.Accepted[201]
			a.Index = 1030
			l.Log.Accept(a)
			l.late("orders", 100, 101, 1100*time.Millisecond)
			moved := *d
			l.Deliveries = slices.Insert(slices.Delete(l.Deliveries, 200, 201), 202, moved)
		},
		"one was written when the other was due": func(l *Ledger) {
			l.knowLess()
			r, d := l.at(100)
			r.At = after(103).Add(-50 * time.Millisecond)
			l.late("orders", 100, 101, 1100*time.Millisecond)
			moved := *d
			l.Deliveries = slices.Insert(slices.Delete(l.Deliveries, 200, 201), 202, moved)
		},
		"a target was held for a while": func(l *Ledger) {
			l.Log.Kill(1, 1200)
			l.Log.Marked(7001, after(101.9), Mark{Due: after(102).UnixMilli()}, []Hold{{Target: "orders", Through: after(102).UnixMilli()}})
			l.Log.Marked(7002, after(102.9), Mark{Due: after(103).UnixMilli()}, nil)
		},
		"a delay topic was held for a while": func(l *Ledger) {
			l.Log.Kill(1, 1200)
			l.cameBy("in.delay")
			hold := []Hold{{DelayTopic: "in.delay", Through: after(102).UnixMilli()}}
			l.Log.Marked(7001, after(101.9), Mark{Due: after(102).UnixMilli()}, hold)
			l.Log.Accept(Acceptance{Message: Message{Identity: l.Records[0].Identity, Target: "orders", Due: 1, Seq: 5000}, Index: 7001, ID: ID{Topic: "in.delay"}})
			l.Log.Marked(7002, after(102.1), Mark{Due: after(102).UnixMilli()}, hold) // the hold's mark stands for the claim's
			l.Log.Kill(5000, 5000)
			delete(l.Log.Accepted, 5000)
			l.Log.Marked(7003, after(102.9), Mark{Due: after(103).UnixMilli()}, nil)
		},
		"a topic was made anew, with the same values": func(l *Ledger) {
			r, d := l.at(100)
			r2, d2 := l.at(200)
			r2.Identity, d2.Identity = r.Identity, d.Identity
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

func TestJudge_finds(t *testing.T) {
	for _, c := range []struct {
		name, check, says string
		change            func(l *Ledger)
	}{
		{"nothing", "script", "nothing was produced", func(l *Ledger) { l.Records = nil }},
		{"a message that is nowhere", "lost", "in.delay/0/201", func(l *Ledger) { l.drop(100) }},
		{"one that is nowhere since a kill", "lost", "in.delay/0/201", func(l *Ledger) {
			l.fault("kill", "", 100, 104)
			l.Terms[0].Over = after(100)
			l.drop(100)
		}},
		{"one that waits though it is due", "stuck", "still waits", func(l *Ledger) {
			r, _ := l.at(100)
			l.fault("forbid", "orders", 100, 110)
			l.drop(100)
			l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: "orders", Due: r.Due, Seq: 201})
			l.Marks.Holds["orders"] = Mark{Due: r.Due}
		}},
		{"one that only the next term found", "progress", "with nothing wrong", func(l *Ledger) {
			l.fault("forbid", "orders", 90, 110)
			l.late("orders", 100, 101, 400*time.Second)
			l.fault("kill", "", 500, 501)
			l.Terms[0].Over = after(500)
		}},
		{"one that no term will find", "stuck", "before the mark", func(l *Ledger) {
			r, _ := l.at(50)
			r.Due = after(900).UnixMilli()
			l.drop(50)
			l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: "orders", Due: r.Due, Seq: 101})
			l.Marks.Holds["orders"] = Mark{Due: after(901).UnixMilli()}
		}},
		{"a backlog that does not shrink", "progress", "with nothing wrong", func(l *Ledger) {
			l.fault("stop", "", 100, 101)
			l.late("orders", 150, 600, 30*time.Second)
		}},
		{"a message of another", "astray", "came out in", func(l *Ledger) { _, d := l.at(9); d.Topic = "bills" }},
		{"a second copy in the target of another", "astray", "came out in", func(l *Ledger) {
			l.fault("kill", "", 9, 12)
			l.again(9, 12).Topic = "bills"
		}},
		{"a value that nobody wrote", "astray", "nobody wrote", func(l *Ledger) { l.again(9, 11).Value = "w" }},
		{"what was aborted", "aborted", "in.delay/0/101", func(l *Ledger) { r, _ := l.at(50); r.Aborted = true }},
		{"a millisecond", "early", "1ms too early", func(l *Ledger) { l.late("orders", 100, 101, -time.Millisecond) }},
		{"a millisecond by a clock that is behind", "early", "too early", func(l *Ledger) {
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(50), Offset: -time.Second})
			l.late("orders", 70, 600, time.Second)
			l.late("bills", 70, 600, time.Second)
			l.late("orders", 100, 101, -time.Millisecond)
		}},
		{"more than members allow each other", "early", "not believed beyond 500ms", func(l *Ledger) {
			l.knowLess()
			l.compare()
			l.fault("clock", "", 100, 100)
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(100), Offset: time.Hour})
			l.late("orders", 200, 201, -501*time.Millisecond)
		}},
		{"that a clock was ahead long ago", "early", "too early", func(l *Ledger) {
			l.knowLess()
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(50), Offset: time.Second}, Clock{Node: "n", At: after(80)})
			l.late("orders", 100, 101, -time.Second)
		}},
		{"that the clock of another was ahead", "early", "too early", func(l *Ledger) {
			l.knowLess()
			l.Clocks = append(l.Clocks, Clock{Node: "m", At: after(50), Offset: time.Second})
			l.late("orders", 100, 101, -time.Second)
		}},
		{"a record under two seqs", "twice-taken", "as 2 messages", func(l *Ledger) { l.fault("kill", "", 100, 101); d := l.again(100, 102); d.Seq, d.Partition = 7000, 1 }},
		{"a record that waits under another seq", "twice-taken", "as 2 messages", func(l *Ledger) {
			r, _ := l.at(50)
			l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: "orders", Due: r.Due, Seq: 7000})
			l.Marks.Holds["orders"] = Mark{Due: r.Due}
		}},
		{"a copy without a fault", "duplicates", "no fault was near", func(l *Ledger) { l.again(100, 130) }},
		{"a copy long before a fault", "duplicates", "no fault was near", func(l *Ledger) { l.fault("kill", "", 300, 310); l.again(100, 130) }},
		{"a copy of what was sent long before a fault", "duplicates", "near the first time", func(l *Ledger) { l.fault("kill", "", 130, 140); l.again(100, 131) }},
		{"a copy beside an orderly stop", "duplicates", "no fault was near", func(l *Ledger) { l.fault("stop", "", 100, 110); l.again(99, 106) }},
		{"a copy of one beside another that is slow", "duplicates", "no fault was near", func(l *Ledger) { l.fault("slow", "bills", 100, 110); l.again(99, 106) }},
		{"one that was acknowledged, sent by a later term", "duplicates", "acknowledged in the log", func(l *Ledger) {
			l.fault("kill", "", 103, 104)
			l.Terms[0].Over = after(103)
			l.Terms = append(l.Terms, Term{Node: "m", Begin: after(105)})
			l.Log.Ack(201, after(102.1))
			l.Log.Send(Sending{Seq: 201, Node: "m", At: after(106)})
		}},
		{"a dead letter since its target took small records only, and before it did", "dead-letter", "are allowed", func(l *Ledger) {
			l.fault("limit", "orders", 110, 120)
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due = "dead", 0, 0
		}},
		{"a term that ended when another node was killed", "term", "no fault was near", func(l *Ledger) {
			l.Faults = append(l.Faults, Fault{Kind: "kill", Node: "m", From: after(100), Until: after(104)})
			l.Terms[0].Over = after(101)
			l.Terms = append(l.Terms, Term{Node: "o", Begin: after(102)})
		}},
		{"a dead letter twice", "duplicates", "no fault was near", func(l *Ledger) {
			r, d := l.at(100)
			r.Target, d.Topic, d.Seq, d.Due = "dead", "dead", 0, 0
			l.again(100, 130)
		}},
		{"two in the wrong order", "order", "came after", func(l *Ledger) {
			l.late("orders", 100, 101, 1100*time.Millisecond)
			l.Deliveries[200], l.Deliveries[202] = l.Deliveries[202], l.Deliveries[200]
		}},
		{"two in the wrong order of which nothing but the times is known", "order", "came after", func(l *Ledger) {
			l.knowLess()
			l.late("orders", 100, 101, 1100*time.Millisecond)
			l.Deliveries[200], l.Deliveries[202] = l.Deliveries[202], l.Deliveries[200]
		}},
		{"two in the wrong order beside a kill", "order", "came after", func(l *Ledger) {
			l.fault("kill", "", 100, 110)
			l.late("orders", 100, 101, 1100*time.Millisecond)
			l.Deliveries[200], l.Deliveries[202] = l.Deliveries[202], l.Deliveries[200]
		}},
		{"one that went out before its claim", "unclaimed", "was committed at", func(l *Ledger) {
			for i := range l.Log.Claims {
				if c := &l.Log.Claims[i]; c.Through == after(102).UnixMilli() {
					c.At = after(102.001)
				}
			}
		}},
		{"one that went out without a claim", "unclaimed", "no claim covers it", func(l *Ledger) {
			l.Log.Claims = l.Log.Claims[:600]
			l.Log.Claims[599].Through = after(601).UnixMilli() - 1
		}},
		{"that nothing was ever claimed", "unclaimed", "no claim covers it", func(l *Ledger) { l.Log.Claims = nil }},
		{"one that a mark has passed on the way", "stuck", "lay before the mark", func(l *Ledger) {
			m := Message{Identity: l.Records[0].Identity, Target: "orders", Due: after(50).UnixMilli(), Seq: 5000}
			l.Log.Accept(Acceptance{Message: m, Index: 7000})
			l.Log.Kill(1, 1200)
			l.Log.Marked(7001, after(50), Mark{Due: m.Due, Seq: 5001}, nil)
			l.Log.Kill(5000, 5000)
			l.Log.Marked(7002, after(50), Mark{Due: m.Due, Seq: 5001}, nil)
			delete(l.Log.Accepted, 5000)
		}},
		{"one that the mark of a hold has passed", "stuck", "of the hold on", func(l *Ledger) {
			l.Log.Kill(1, 200)
			l.Log.Kill(203, 1200)
			l.Log.Marked(7001, after(50), Mark{}, []Hold{{Target: "orders", Through: after(900).UnixMilli(), Mark: Mark{Due: after(900).UnixMilli()}}})
		}},
		{"one that went out though its target was held", "unclaimed", "held its target", func(l *Ledger) {
			l.Log.Kill(1, 1200)
			l.Log.Marked(7001, after(101), Mark{}, []Hold{{Target: "orders", Through: after(101).UnixMilli()}})
			l.Log.Marked(7002, after(104), Mark{}, nil)
		}},
		{"one that went out though its delay topic was held", "unclaimed", "held its delay topic", func(l *Ledger) {
			l.Log.Kill(1, 1200)
			l.cameBy("in.delay")
			l.Log.Marked(7001, after(101), Mark{}, []Hold{{DelayTopic: "in.delay", Through: after(101).UnixMilli()}})
			l.Log.Marked(7002, after(104), Mark{}, nil)
		}},
		{"one that the mark of its delay topic's hold has passed", "stuck", "of the hold on", func(l *Ledger) {
			m := Message{Identity: l.Records[0].Identity, Target: "orders", Due: after(50).UnixMilli(), Seq: 5000}
			l.Log.Accept(Acceptance{Message: m, Index: 7000, ID: ID{Topic: "in.delay"}})
			l.Log.Kill(1, 1200)
			l.Log.Marked(7001, after(50), Mark{}, []Hold{{DelayTopic: "in.delay", Mark: Mark{Due: m.Due, Seq: 5001}}})
			l.Log.Kill(5000, 5000)
			delete(l.Log.Accepted, 5000)
		}},
		{"one that says it is due earlier than it was to be", "due", "was to be due", func(l *Ledger) {
			_, d := l.at(100)
			d.At, d.Due = d.At.Add(-500*time.Millisecond), d.Due-500
			l.knowLess()
		}},
		{"one that does not say when it is due", "due", "as due 0, seq 1,", func(l *Ledger) { _, d := l.at(0); d.Due = 0 }},
		{"a copy in a target that has no seq", "due", "seq 0", func(l *Ledger) { _, d := l.at(100); d.Seq = 0 }},
		{"one that waits for another time", "due", "waits for orders", func(l *Ledger) {
			r, _ := l.at(50)
			r.Due = after(3e7).UnixMilli()
			l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: "orders", Due: r.Due + 1, Seq: 101})
			l.drop(50)
		}},
		{"a record that was accepted twice and delivered once", "twice-taken", "accepted as 2 messages", func(l *Ledger) {
			a := l.Log.Accepted[7]
			a.Seq, a.Index = 9000, 9000
			l.Log.Accept(a)
		}},
		{"a good message that is a dead letter", "dead-letter", "could not be written to for 0s only", func(l *Ledger) {
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due = "dead", 0, 0
		}},
		{"one whose target was missing for too short a time", "dead-letter", "for 1m40s only", func(l *Ledger) {
			l.fault("missing", "orders", 100, 200)
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(200)
			l.held("orders", 101, 200, 220)
		}},
		{"one whose target Kafka called missing now and then", "dead-letter", "for 1m0s only", func(l *Ledger) {
			l.fault("hush", "orders", 100, 420)
			for at := 100.0; at < 420; at += 80 {
				l.fault("stray", "orders", at, at+60)
			}
			_, d := l.at(100)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(410)
			l.held("orders", 101, 420, 450)
		}},
		{"one that was not due for long enough", "dead-letter", "due for 1m58s only", func(l *Ledger) {
			l.fault("missing", "orders", 100, 500)
			_, d := l.at(300)
			d.Topic, d.Seq, d.Due, d.At = "dead", 0, 0, after(420)
			l.held("orders", 100, 499, 560)
		}},
		{"one that was delivered, too", "dead-letter", "as well", func(l *Ledger) {
			l.fault("missing", "orders", 90, 99)
			d := l.again(100, 420)
			d.Topic, d.Seq, d.Due = "dead", 0, 0
		}},
		{"that one bad target harms another", "isolation", "beside a target that was bad", func(l *Ledger) {
			l.fault("slow", "orders", 100, 200)
			l.late("bills", 150, 160, 20*time.Second)
		}},
		{"that half of those beside it are late", "isolation", "half of", func(l *Ledger) {
			l.fault("hush", "orders", 100, 200)
			l.late("bills", 110, 200, 2500*time.Millisecond)
		}},
		{"that half are late though nothing is wrong", "progress", "half of", func(l *Ledger) {
			l.late("orders", 0, 600, 1500*time.Millisecond)
			l.late("bills", 0, 50, 1500*time.Millisecond)
		}},
		{"that is late though clocks were behind long after it came", "progress", "with nothing wrong", func(l *Ledger) {
			l.late("orders", 100, 101, 30*time.Second)
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(650), Offset: -time.Minute})
		}},
		{"two in the wrong order long before a clock was ahead", "order", "came after", func(l *Ledger) {
			l.knowLess()
			l.late("orders", 100, 101, 1100*time.Millisecond)
			l.Deliveries[200], l.Deliveries[202] = l.Deliveries[202], l.Deliveries[200]
			l.Clocks = append(l.Clocks, Clock{Node: "n", At: after(650), Offset: time.Minute})
		}},
		{"a fault of which nothing is known", "script", `the kind "flood"`, func(l *Ledger) { l.fault("flood", "", 100, 101) }},
		{"a copy beside a change of configuration", "duplicates", "no fault was near", func(l *Ledger) { l.fault("config", "", 100, 100); l.again(99, 106) }},
		{"a term that a check of its own ended while a disk was slow", "term", "no fault may end it so", func(l *Ledger) {
			l.fault("slow-disk", "", 399, 420)
			l.Terms[0].Over, l.Terms[0].Reason = after(400), "schedule: target orders has two marks"
		}},
		{"a term that ended by itself", "term", "no fault was near", func(l *Ledger) {
			l.fault("kill", "", 100, 101)
			l.Terms[0].Over, l.Terms[0].Reason = after(400), "leadership was lost"
		}},
		{"a term that ended of a slow target", "term", "no fault was near", func(l *Ledger) {
			l.fault("slow", "orders", 380, 420)
			l.Terms[0].Over, l.Terms[0].Reason = after(400), "leadership was lost"
		}},
		{"a term that a check of its own ended", "term", "no fault may end it so", func(l *Ledger) {
			l.fault("kill", "", 399, 420)
			l.Terms[0].Over, l.Terms[0].Reason = after(400), "schedule: target orders has two marks"
		}},
		{"one of a key that was passed while partitions were added", "order", "of the key", func(l *Ledger) {
			l.fault("partitions", "orders", 101, 101)
			_, first := l.at(100)
			_, second := l.at(101)
			first.Key, second.Key = "hot", "hot"
			first.Partition, first.At = 7, after(104)
		}},
		{"half of what comes beside a slow target", "isolation", "targets that were slow", func(l *Ledger) {
			l.fault("slow", "orders", 100, 200)
			l.late("bills", 120, 190, 700*time.Millisecond)
		}},
		{"a target that is tried all the time", "bounds", "connections", func(l *Ledger) { l.Costs.Dials = 200 }},
		{"a question for each message", "bounds", "for topics and offsets", func(l *Ledger) { l.Costs.Lookups = 5000 }},
		{"records sent again and again", "bounds", "that write", func(l *Ledger) { l.Costs.Produces = 2500 }},
		{"all of storage read for each message", "bounds", "looked at in storage", func(l *Ledger) { l.Costs.Scanned = 10 * 1200 }},
		{"claims without end", "bounds", "claims", func(l *Ledger) { l.Costs.Claims = 5000 }},
		{"all holds in each claim", "bounds", "bytes of claims", func(l *Ledger) { l.Costs.Claims, l.Costs.ClaimBytes, l.Costs.Parked = 100, 20_000, 50 }},
		{"goroutines that stay", "bounds", "goroutines", func(l *Ledger) { l.Costs.Goroutines = 400 }},
		{"goroutines that pile up for a while", "bounds", "goroutines at some time", func(l *Ledger) { l.Costs.MostGoroutines = 1400 }},
		{"memory", "bounds", "bytes of memory", func(l *Ledger) { l.Costs.Memory = 100 << 20 }},
		{"files that stay open", "bounds", "open files", func(l *Ledger) { l.Costs.Files = 200 }},
		{"what was found on the way", "digest", "differ", func(l *Ledger) { l.Found = []Problem{{"digest", "n and m differ"}} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := wellKept()
			c.change(l)
			problems := l.Judge()
			if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Check == c.check && strings.Contains(p.Text, c.says) }) {
				t.Errorf("want %s that says %q, got %v", c.check, c.says, problems)
			}
			for _, p := range problems {
				if p.Check != c.check {
					t.Errorf("found besides: %s: %s", p.Check, p.Text)
				}
			}
		})
	}
}

// cameBy has the log say by which delay topic everything came.
func (l *Ledger) cameBy(topic string) {
	for seq, a := range l.Log.Accepted {
		a.ID.Topic = topic
		l.Log.Accepted[seq] = a
	}
}
