package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// letterOf has the log make the record of that second a dead letter at a time, and Kafka have it at another.
func (l *Ledger) letterOf(second int, since, written float64) {
	l.fault("missing", "orders", 0.5, since+1)
	r, d := l.at(second)
	d.Topic, d.Seq, d.Due, d.At = l.DeadLetters, 0, 0, after(written)
	l.Log.Accept(Acceptance{Message: Message{Identity: r.Identity, Target: l.DeadLetters, Due: r.Due, Seq: 5000}, Index: 4001, At: after(since), Letter: true})
	l.held("orders", 0, int(since), since+20)
}

func TestJudge_findsDeadLettersThatComeLate(t *testing.T) {
	l := wellKept()
	l.letterOf(100, 405, 440)
	if problems := l.Judge(); len(problems) != 1 || problems[0].Check != "progress" || !strings.Contains(problems[0].Text, "a dead letter since 6m45s") {
		t.Errorf("want that one came late, got %v", problems)
	}
}

func TestJudge_findsDeadLettersThatNobodyTriesAgain(t *testing.T) {
	l := wellKept()
	l.letterOf(100, 405, 406)
	r, _ := l.at(100)
	l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: l.DeadLetters, Due: after(610).UnixMilli(), Seq: 5000})
	l.drop(100)
	l.fault("limit", l.DeadLetters, 400, 450)
	if problems := l.Judge(); !slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Check == "stuck" && strings.Contains(p.Text, "a dead letter since 6m45s, still waits")
	}) {
		t.Errorf("want that one waits, got %v", problems)
	}
}

func TestJudge_allowsDeadLettersToWaitForTheirTopic(t *testing.T) {
	for _, fault := range []string{"limit", "forbid", "hush"} {
		l := wellKept()
		l.letterOf(100, 405, 470)
		l.fault(fault, l.DeadLetters, 400, 450)
		if problems := l.Judge(); len(problems) > 0 {
			t.Errorf("%s: want nothing, got %v", fault, problems)
		}
	}
}

// What fails while delay topics are read says nothing of whether a target was tried meanwhile.
func TestJudge_letsErrorsOfReadingExcuseNoDeadLetter(t *testing.T) {
	condemned := func(fault string) []Problem {
		l := wellKept()
		l.fault("missing", "orders", 100, 250)
		l.fault(fault, "", 255, 330)
		l.fault("missing", "orders", 335, 499)
		_, d := l.at(100)
		d.Topic, d.Seq, d.Due, d.At = l.DeadLetters, 0, 0, after(410)
		l.held("orders", 101, 499, 510)
		return l.Judge()
	}
	if problems := condemned("unread"); len(problems) != 1 || problems[0].Check != "dead-letter" {
		t.Errorf("want a dead letter that nothing excuses, got %v", problems)
	}
	if problems := condemned("error"); len(problems) > 0 {
		t.Errorf("want nothing, got %v", problems)
	}
}

// crowd has so many due for mails at one instant, of which one comes after the other.
func (l *Ledger) crowd(count int, second float64, each time.Duration) {
	due := after(second)
	for i := range count {
		id := Identity{fmt.Sprintf("in.delay/1/%d", i), fmt.Sprint("crowd", i)}
		seq := uint64(len(l.Records) + 1)
		l.Records = append(l.Records, Record{Identity: id, Topic: "in.delay", At: after(1), Target: "mails", Due: due.UnixMilli()})
		l.Deliveries = append(l.Deliveries, Delivery{
			Identity: id, Topic: "mails", Offset: int64(i), At: due.Add(time.Duration(i+1) * each), Due: due.UnixMilli(), Seq: seq,
		})
		l.Log.Accept(Acceptance{Message: Message{Identity: id, Target: "mails", Due: due.UnixMilli(), Seq: seq}, Index: 15})
	}
}

// Few of a target are out at a time. What is behind them waits for its own kind, and for nobody who is bad.
func TestJudge_allowsACrowdTheTimeThatItTakes(t *testing.T) {
	for _, fault := range []string{"missing", "hush", "slow", "config"} {
		l := wellKept()
		l.Each = 2 * time.Millisecond
		l.crowd(4000, 100, 2*time.Millisecond)
		l.fault(fault, "never", 1, 600)
		if problems := l.Judge(); len(problems) > 0 {
			t.Errorf("%s: want nothing, got %v", fault, problems)
		}
	}
}

func TestJudge_findsThatACrowdTakesLonger(t *testing.T) {
	find := func(name, check, says string, change func(*Ledger)) {
		l := wellKept()
		l.Each = 2 * time.Millisecond
		change(l)
		problems := l.Judge()
		if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Check == check && strings.Contains(p.Text, says) }) {
			t.Errorf("%s: want %s that says %q, got %v", name, check, says, problems)
		}
		for _, p := range problems {
			if p.Check != check {
				t.Errorf("%s: found besides: %s: %s", name, p.Check, p.Text)
			}
		}
	}
	find("each waits for a target that is bad", "isolation", "half of", func(l *Ledger) {
		l.crowd(4000, 100, 4*time.Millisecond)
		l.fault("hush", "never", 1, 600)
	})
	find("all wait for it, a few seconds long", "isolation", "half of", func(l *Ledger) {
		l.crowd(4000, 100, 2*time.Millisecond)
		for i := range l.Deliveries {
			if d := &l.Deliveries[i]; d.Topic == "mails" {
				d.At = d.At.Add(2 * time.Second)
			}
		}
		l.fault("slow", "never", 1, 600)
	})
	find("with nothing wrong", "progress", "half of", func(l *Ledger) { l.crowd(4000, 100, 4*time.Millisecond) })
	find("each in its turn, but for the last", "progress", "with nothing wrong", func(l *Ledger) {
		l.crowd(1000, 100, 2*time.Millisecond)
		l.Deliveries[len(l.Deliveries)-1].At = after(160)
	})
	find("the last one never comes", "stuck", "still waits", func(l *Ledger) {
		l.crowd(1000, 100, 2*time.Millisecond)
		last := len(l.Deliveries) - 1
		d := l.Deliveries[last]
		l.Deliveries = l.Deliveries[:last]
		l.Pending = append(l.Pending, Message{Identity: d.Identity, Target: "mails", Due: d.Due, Seq: d.Seq})
		l.Marks.Main = Mark{Due: d.Due}
	})
}

// stopped has m set behind and n, which leads, ahead; o is never set. Nothing comes from then on until clocks are right again.
func (l *Ledger) stopped() {
	l.compare()
	set := func(node string, at float64, offset time.Duration) {
		l.Clocks = append(l.Clocks, Clock{Node: node, At: after(at), Offset: offset})
		l.fault("clock", "", at, at)
	}
	set("m", 100, -40*time.Second)
	set("n", 150, 4*time.Minute)
	set("m", 400, 0)
	set("n", 400, 0)
	for _, target := range []string{"orders", "bills"} {
		l.held(target, 150, 410, 415)
	}
}

// Where no two clocks agree, a leader whose clock was set fires nothing, by the guarantees. One whose
// clock was not set goes on, and so does everybody when most agree.
func TestJudge_letsALeaderStandStillWhileNobodyKnowsTheTime(t *testing.T) {
	l := wellKept()
	l.stopped()
	if problems := l.Judge(); len(problems) > 0 {
		t.Errorf("want nothing, got %v", problems)
	}
	for name, change := range map[string]func(*Ledger){
		"the clock of the leader was not set": func(l *Ledger) { l.Terms[0].Node = "o" },
		"most agree again": func(l *Ledger) {
			l.Clocks = append(l.Clocks, Clock{Node: "m", At: after(250)})
			l.fault("clock", "", 250, 250)
		},
		"nobody compares clocks": func(l *Ledger) { l.MaxSkew = 0 },
		"another one leads after a while": func(l *Ledger) {
			l.fault("kill", "", 250, 250)
			l.Terms[0].Over = after(250)
			l.Terms = append(l.Terms, Term{Node: "o", Begin: after(252)})
		},
	} {
		l := wellKept()
		l.stopped()
		change(l)
		problems := l.Judge()
		if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Check == "progress" && strings.Contains(p.Text, "with nothing wrong") }) {
			t.Errorf("%s: want messages that come late, got %v", name, problems)
		}
		for _, p := range problems {
			if p.Check != "progress" {
				t.Errorf("%s: found besides: %s: %s", name, p.Check, p.Text)
			}
		}
	}
}
