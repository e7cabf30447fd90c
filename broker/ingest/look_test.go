package ingest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm"
)

// lookFor looks every second for so long, and returns how often all topics were listed, topics were named, and
// offsets of a partition were asked.
func lookFor(t *testing.T, source *scriptedSource, look func() error, span time.Duration) (listed, named, offsets int) {
	t.Helper()
	source.asks, source.offsets = nil, 0
	for range int(span / time.Second) {
		if err := look(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
	}
	for _, names := range source.asks {
		if names == nil {
			listed++
		} else {
			named++
		}
	}
	return listed, named, source.offsets
}

func TestLook_listsALargeKafkaRarely(t *testing.T) {
	for topics, most := range map[int]int{1: 60, 500: 60, 1000: 30, 5000: 6, 50_000: 6} {
		withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
			source.found, source.others = []toldPartition{toldOf("in.delay", 0, 0)}, topics
			lookFor(t, source, look, 20*time.Second)
			listed, named, _ := lookFor(t, source, look, time.Minute)
			if listed < most-1 || listed > most || listed+named != 60 {
				t.Errorf("a Kafka of %d topics was listed %d times in a minute, and %d times topics were named; want %d listings, one question a second",
					topics, listed, named, most)
			}
		})
	}
}

func TestLook_asksForOffsetsRarelyWhenNothingComes(t *testing.T) {
	withDiscovery(t, config.StartLatest, func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []toldPartition{toldOf("busy.delay", 0, 5), toldOf("idle.delay", 0, 5)}
		lookFor(t, source, look, 20*time.Second)
		if _, _, offsets := lookFor(t, source, look, time.Minute); offsets != 2*6 {
			t.Errorf("offsets were asked %d times in an idle minute, want every 10 s for each partition", offsets)
		}
		source.found[0].Latest = 100 // it is not read: the lag is asked each second
		lookFor(t, source, look, 20*time.Second)
		if _, _, offsets := lookFor(t, source, look, time.Minute); offsets != 60+6 {
			t.Errorf("offsets were asked %d times in a minute with one busy partition", offsets)
		}
		if lag := d.Report.Read().Lag; lag == nil || *lag != 95 {
			t.Errorf("lag %v, want 95", lag)
		}
		source.found[1].Epoch++ // a new leader is asked at once
		if err := look(); err != nil || d.topics["idle.delay"].partitions[0].askedIn != source.found[1].Epoch {
			t.Errorf("the new leader was not asked: %v", err)
		}
	})
}

// Of what Kafka cannot tell who leads it, it cannot tell the offsets either.
func TestLook_asksNoOffsetsOfATopicThatCannotBeLookedAt(t *testing.T) {
	withDiscovery(t, config.StartLatest, func(d *discovery, source *scriptedSource, look func() error) {
		busy := toldOf("busy.delay", 0, 5)
		source.found = []toldPartition{toldOf("idle.delay", 0, 5), busy}
		lookFor(t, source, look, 20*time.Second)
		source.found[1].Latest = 100 // it is not read: offsets are asked each second
		lookFor(t, source, look, 20*time.Second)
		if _, _, offsets := lookFor(t, source, look, time.Minute); offsets != 60+6 {
			t.Errorf("offsets were asked %d times in a minute with one busy partition", offsets)
		}
		source.found, source.hidden = source.found[:1], []SourceTopic{{Topic: busy.Topic, Err: ErrSourceForbidden}}
		if _, _, offsets := lookFor(t, source, look, time.Minute); offsets != 6 {
			t.Errorf("offsets were asked %d times in a minute in which one of two topics could not be looked at", offsets)
		}
	})
}

func TestLook_asksSomethingOfAKafkaWithoutDelayTopics(t *testing.T) {
	withDiscovery(t, config.StartLatest, func(d *discovery, source *scriptedSource, look func() error) {
		source.others = 5000
		if listed, named, _ := lookFor(t, source, look, time.Minute); listed != 6 || named != 54 {
			t.Errorf("%d listings and %d other questions in a minute", listed, named)
		}
		source.found = []toldPartition{toldOf("new.delay", 0, 5)}
		lookFor(t, source, look, mostPause+time.Second)
		if !slices.ContainsFunc(source.assigned, func(p SourcePosition) bool { return p.Topic == "new.delay" && p.Next == 0 }) {
			t.Errorf("a new topic is not read: %+v", source.assigned)
		}
	})
}

// The Kafka client tries some errors again for ever without a word.
func TestLook_seesThatNothingComes(t *testing.T) {
	withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []toldPartition{toldOf("in.delay", 0, 5)}
		lookFor(t, source, look, stuckAfter)
		if problems := d.Report.Read().Problems; len(problems) != 0 {
			t.Errorf("problems %q too soon", problems)
		}
		lookFor(t, source, look, 5*time.Second)
		if problems := d.Report.Read().Problems; !slices.Contains(problems, "source: not read: in.delay/0 (failing: "+errNothingComes.Error()+")") {
			t.Errorf("problems %q, nothing came for %v", problems, stuckAfter)
		}
		at := d.Store.State().Positions[0]
		at.Next = 5
		set := raftfsm.SetPositions{Sets: []raftfsm.PositionSet{{Position: at}}}
		if _, err := d.Log.Propose(context.Background(), set).Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := look(); err != nil || len(d.Report.Read().Problems) != 0 {
			t.Errorf("problems %q though all was read, %v", d.Report.Read().Problems, err)
		}
	})
}

// A Kafka that runs on an older copy of its disks ends before what was read, in no later epoch. Nothing proves that what was
// read is gone, so nothing is read again, and what is written before the position would be passed over without a word.
func TestLook_seesThatAPartitionEndsBeforeWhatWasRead(t *testing.T) {
	withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []toldPartition{toldOf("in.delay", 0, 0)}
		lookFor(t, source, look, 10*time.Second)
		at := d.Store.State().Positions[0]
		at.Next = 5
		set := raftfsm.SetPositions{Sets: []raftfsm.PositionSet{{Position: at}}}
		if _, err := d.Log.Propose(context.Background(), set).Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		source.found = []toldPartition{toldOf("in.delay", 0, 3)}
		lookFor(t, source, look, stuckAfter)
		if problems := d.Report.Read().Problems; len(problems) != 0 {
			t.Errorf("problems %q too soon", problems)
		}
		lookFor(t, source, look, 5*time.Second)
		problems := d.Report.Read().Problems
		if len(problems) != 1 || !strings.HasPrefix(problems[0], "source: not read: in.delay/0 (doubtful: read to offset 5, and it has ended at 3 since") {
			t.Errorf("problems %q, the partition ends before what was read", problems)
		}
		if next := d.Store.State().Positions[0].Next; next != 5 {
			t.Errorf("reading goes on at %d, want 5", next)
		}
		source.found = []toldPartition{toldOf("in.delay", 0, 5)}
		if err := look(); err != nil || len(d.Report.Read().Problems) != 0 {
			t.Errorf("problems %q though all is there again, %v", d.Report.Read().Problems, err)
		}
	})
}

// A broker that has just started may list a part: who takes that for all reads what is found later from its start on.
func TestSurvey_beginsAnewWhenALookFails(t *testing.T) {
	var s survey
	found := []foundPartition{{id: partitionID{topic: TopicID{1}}}}
	begun := time.Now()
	for i, look := range []struct {
		complete bool
		after    time.Duration
		done     bool
	}{
		{true, 0, false},
		{false, confirmAfter / 2, false},
		{true, confirmAfter, false},
		{true, 2*confirmAfter - 1, false},
		{true, 2 * confirmAfter, true},
	} {
		if done := s.hear(found, look.complete, begun.Add(look.after)); done != look.done {
			t.Errorf("look %d, after %v: done is %v", i, look.after, done)
		}
	}
}

// A broker that starts, goes away and starts once more lists nothing each time. Two such answers are not the word of all looks
// in the time between them.
func TestSurvey_beginsAnewWhenKafkaIsSilent(t *testing.T) {
	withDiscovery(t, "", func(d *discovery, source *scriptedSource, look func() error) {
		lookFor(t, source, look, time.Second)
		source.err = errors.New("connection refused")
		lookFor(t, source, look, confirmAfter+time.Second)
		source.err = nil
		lookFor(t, source, look, time.Second)
		source.found = []toldPartition{toldOf("old.delay", 0, 1000)}
		confirm(t, look)
		if next, reads := source.starts()["old.delay"]; reads {
			t.Errorf("reading begins at %d of a topic that held records when the cluster was born, and nobody has said where to start", next)
		}
	})
}
