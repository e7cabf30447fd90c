package ledger

import (
	"strings"
	"testing"
	"time"
)

// A Kafka broker that leads a partition of bills answers nothing for a while.
func TestJudge_findsTargetsThatWaitForABrokerThatDoesNotLeadThem(t *testing.T) {
	l := wellKept()
	l.fault("stall", "bills", 100, 110)
	l.late("orders", 103, 104, 2*time.Second)
	if problems := l.Judge(); len(problems) != 1 || problems[0].Check != "isolation" || !strings.Contains(problems[0].Text, "does not lead its target") {
		t.Errorf("want one that was late, got %v", problems)
	}
}

func TestJudge_allowsToWaitForABrokerThatIsStalled(t *testing.T) {
	for what, wrong := range map[string]func(*Ledger){
		"it leads the target": func(l *Ledger) {
			l.fault("stall", "orders", 100, 110)
			l.late("orders", 101, 108, 2*time.Second)
		},
		"something else is wrong": func(l *Ledger) {
			l.fault("kill", "", 101, 102)
			l.late("orders", 103, 104, 2*time.Second)
		},
		"the record was not read yet": func(l *Ledger) {
			a := l.Log.Accepted[207]
			a.At = after(106.5)
			l.Log.Accepted[207] = a
			l.late("orders", 103, 104, 2*time.Second)
		},
	} {
		l := wellKept()
		l.fault("stall", "bills", 100, 110)
		wrong(l)
		if problems := l.Judge(); len(problems) > 0 {
			t.Errorf("%s: want nothing, got %v", what, problems)
		}
	}
}
