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
