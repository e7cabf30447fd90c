package ingest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

func TestLoss_isAProblemForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l loss
		if l.problem() != "" {
			t.Error("nothing is lost yet")
		}
		for range 2 {
			l.note(move{PositionSet: raftfsm.PositionSet{Position: storage.Position{Topic: "a.delay", Next: 12}, From: 5}})
		}
		want := "14 records were deleted by Kafka within the last hour or so before they could be read, of a.delay/0: raise the retention of the delay topics"
		if got := l.problem(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(lossShown)
		if got := l.problem(); got != "" {
			t.Errorf("an hour later: %q", got)
		}
		l.note(move{PositionSet: raftfsm.PositionSet{Position: storage.Position{Topic: "b.delay", Next: 3}, From: 2}})
		want = "1 records were deleted by Kafka within the last hour or so before they could be read, of b.delay/0: raise the retention of the delay topics"
		if got := l.problem(); got != want {
			t.Errorf("lost again: %q, want %q", got, want)
		}
	})
}

func TestLoss_namesThePartitionsThatLostMost(t *testing.T) {
	var l loss
	for n := range int32(report.MostNamed) {
		l.note(move{PositionSet: raftfsm.PositionSet{Position: storage.Position{Topic: "a.delay", Partition: n, Next: 10 + int64(n)}}})
	}
	if got := l.problem(); strings.Contains(got, "and others") || !strings.Contains(got, "a.delay/9, a.delay/8") || !strings.Contains(got, "a.delay/0:") {
		t.Errorf("not all of %d are named, in order: %q", report.MostNamed, got)
	}
	l.note(move{PositionSet: raftfsm.PositionSet{Position: storage.Position{Topic: "b.delay", Next: 1}}})
	if got := l.problem(); !strings.Contains(got, "and others") || strings.Contains(got, "b.delay") {
		t.Errorf("one more: %q", got)
	}
}
