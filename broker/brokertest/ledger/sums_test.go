package ledger

import (
	"fmt"
	"testing"
)

func TestJudge_tellsAFewOfEachCheckAndHowMany(t *testing.T) {
	l := wellKept()
	l.Deliveries = nil
	problems := l.Judge()
	if len(problems) != mostEach+1 || problems[mostEach].Text != fmt.Sprintf("and %d more", 1200-mostEach) {
		t.Errorf("got %v", problems)
	}
}

func TestDuplicates_areCountedByFault(t *testing.T) {
	l := wellKept()
	l.fault("kill", "", 100, 104)
	l.fault("slow", "orders", 300, 304)
	for _, second := range []int{97, 98, 300, 500} {
		l.again(second, float64(second)+7)
	}
	if got := fmt.Sprint(l.Duplicates()); got != "map[:1 kill:2 slow:1]" {
		t.Error(got)
	}
	l.fault("freeze", "", 103, 110)
	if got := fmt.Sprint(l.Pairs()); got != "map[freeze+kill:1]" {
		t.Error(got)
	}
}
