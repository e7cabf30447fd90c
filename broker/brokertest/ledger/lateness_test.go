package ledger

import (
	"slices"
	"strings"
	"testing"
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
