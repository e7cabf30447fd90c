package ledger

import (
	"slices"
	"strings"
	"testing"
)

func TestJudge_findsWhatAMissingTargetIsNotGivenUpFor(t *testing.T) {
	l := wellKept()
	l.condemn("orders", 550)
	problems := l.Judge()
	if len(problems) == 0 || slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Check != "stuck" || !strings.Contains(p.Text, "could not be written to for") && !strings.Contains(p.Text, "more")
	}) {
		t.Errorf("want that it was given up too late, got %v", problems)
	}
}

func TestJudge_allowsANewLeaderToCountAnewForHowLongATargetIsMissing(t *testing.T) {
	l := wellKept()
	l.condemn("orders", 550)
	l.fault("kill", "", 200, 210)
	l.Terms[0].Over = after(200)
	l.Terms = append(l.Terms, Term{Node: "m", Begin: after(205)})
	if problems := l.Judge(); len(problems) > 0 {
		t.Errorf("want nothing, got %v", problems)
	}
}

// condemn has the target be missing all the time, what was due for it in the first hundred seconds be a dead letter since
// then, and what was due later be due in a year.
func (l *Ledger) condemn(target string, since float64) {
	l.Faults = append(l.Faults, Fault{Kind: "missing", Topic: target, From: begin})
	year := after(3e7)
	for i := range l.Records {
		r, d := &l.Records[i], &l.Deliveries[i]
		if r.Target != target {
			continue
		}
		a := l.Log.Accepted[d.Seq]
		if r.Due <= after(100).UnixMilli() {
			d.Topic, d.Seq, d.Due, d.At = l.DeadLetters, 0, 0, after(since)
			l.Log.Accept(Acceptance{Message: Message{Identity: r.Identity, Target: l.DeadLetters, Seq: 5000 + uint64(i)}, Index: 9000, At: after(since), Letter: true})
			continue
		}
		a.Due, r.Due = year.UnixMilli(), year.UnixMilli()
		l.Log.Accepted[d.Seq] = a
		l.Pending = append(l.Pending, Message{Identity: r.Identity, Target: target, Due: r.Due, Seq: d.Seq})
	}
	l.Deliveries = slices.DeleteFunc(l.Deliveries, func(d Delivery) bool { return d.Topic == target })
}

func TestJudge_allowsTheLongestTimeOfAllRoutesThatThereWere(t *testing.T) {
	l := wellKept()
	l.condemn("orders", 550)
	l.LongestMissingTimeout *= 2
	if problems := l.Judge(); len(problems) > 0 {
		t.Errorf("want nothing, got %v", problems)
	}
}

// A partition that was added while all of Kafka tells what was true before may be condemned, and no other.
func TestJudge_excusesThatAPartitionWasNotToldOf(t *testing.T) {
	for _, test := range []struct {
		added, stale float64 // when, in seconds; 0: not at all
		excused      bool
	}{
		{added: 95, stale: 90, excused: true},
		{added: 85, stale: 90},
		{added: 95},
	} {
		l := wellKept()
		l.fault("partitions", "orders", test.added, test.added)
		if test.stale > 0 {
			l.fault("stale", "", test.stale, 200)
		}
		_, d := l.at(100)
		d.Topic, d.Seq, d.Due, d.Unplaced = l.DeadLetters, 0, 0, true
		if problems := l.Judge(); (len(problems) == 0) != test.excused {
			t.Errorf("added at %vs, and told of what was before from %vs on: %v", test.added, test.stale, problems)
		}
	}
}
