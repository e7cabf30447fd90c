package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
)

// A toldPartition is what a scriptedSource tells of partition 0 of a topic.
type toldPartition struct {
	Topic   string
	TopicID TopicID
	OffsetsAnswer
}

// A scriptedSource answers as the test says and remembers what is assigned.
type scriptedSource struct {
	Source
	found    []toldPartition
	stale    []toldPartition // what the leaders have instead, who have not heard of the topics of found yet
	hidden   []SourceTopic   // told only when named, with their Err
	complete bool            // else one more topic is listed with an error
	err      error
	assigned []SourcePosition
	asked    func() // when offsets are asked
	failures []SourceFailure
	others   int        // how many topics Kafka lists; 0: those of found
	asks     [][]string // the names in each call of Topics
	offsets  int        // questions to Offsets
}

func (s *scriptedSource) Topics(_ context.Context, names []string) (topics []SourceTopic, looked int, err error) {
	s.asks = append(s.asks, names)
	for _, f := range s.found {
		if names == nil || slices.Contains(names, f.Topic) {
			topics = append(topics, SourceTopic{Topic: f.Topic, TopicID: f.TopicID, Partitions: []SourceLeader{{Epoch: f.Epoch}}})
		}
	}
	for _, name := range names {
		if i := slices.IndexFunc(s.hidden, func(h SourceTopic) bool { return h.Topic == name }); i >= 0 {
			topics = append(topics, s.hidden[i])
		} else if !slices.ContainsFunc(s.found, func(f toldPartition) bool { return f.Topic == name }) {
			topics = append(topics, SourceTopic{Topic: name, Err: ErrSourceMissing})
		}
	}
	if names == nil && !s.complete {
		topics = append(topics, SourceTopic{Topic: "leaderless.delay", Err: errors.New("no leader")})
	}
	return topics, max(s.others, len(topics)), s.err
}

func (s *scriptedSource) Offsets(_ context.Context, questions []OffsetsQuestion) (answers []OffsetsAnswer, err error) {
	if s.asked != nil {
		s.asked()
	}
	s.offsets += len(questions)
	for _, q := range questions {
		has := slices.Concat(s.stale, s.found)
		i := slices.IndexFunc(has, func(f toldPartition) bool { return f.Topic == q.Topic })
		answer := has[i].OffsetsAnswer
		answer.End = max(answer.End, answer.Latest)
		if q.TopicID != (TopicID{}) && q.TopicID != has[i].TopicID {
			answer = OffsetsAnswer{Err: ErrSourceMissing}
		}
		answers = append(answers, answer)
	}
	return answers, s.err
}

func (s *scriptedSource) Failures() []SourceFailure { return s.failures }

func (s *scriptedSource) Assign(positions []SourcePosition) { s.assigned = positions }

// withDiscovery runs test with the discovery of a new cluster, whose route begins at start.
func withDiscovery(t *testing.T, start string, test func(d *discovery, source *scriptedSource, look func() error)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		node := nodetest.Open(t, ctx)
		config, source := config.Default(), &scriptedSource{complete: true}
		config.Routes[0].Start = start
		d := newDiscovery(Options{
			Config: config, Source: source, Log: node, Store: node.Store(), Now: time.Now, Report: report.New(),
		}, newPlaces(), slog.New(slog.DiscardHandler))
		test(d, source, func() error { return d.pass(ctx) })
		cancel()
		synctest.Wait()
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
}

func toldOf(topic string, earliest, latest int64) toldPartition {
	return toldPartition{Topic: topic, TopicID: TopicID([]byte((topic + "................")[:16])),
		OffsetsAnswer: OffsetsAnswer{Earliest: earliest, Latest: latest, ReadEnd: -1}}
}

// confirm looks for as long as answers must last to be certain, of which one follows from another.
func confirm(t *testing.T, look func() error) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) <= 2*confirmAfter+time.Second; time.Sleep(time.Second) {
		if err := look(); err != nil {
			t.Fatal(err)
		}
	}
}

// starts returns where reading begins, by topic.
func (s *scriptedSource) starts() map[string]int64 {
	starts := make(map[string]int64)
	for _, p := range s.assigned {
		starts[p.Topic] = p.Next
	}
	return starts
}

func TestDiscovery_startHoldsUntilAllTopicsWereLookedAt(t *testing.T) {
	seen, hidden, added := toldOf("seen.delay", 2, 10), toldOf("hidden.delay", 3, 20), toldOf("added.delay", 0, 5)
	for start, want := range map[string]map[string]int64{
		config.StartEarliest: {"seen.delay": 2, "hidden.delay": 3, "added.delay": 0},
		config.StartLatest:   {"seen.delay": 10, "hidden.delay": 20, "added.delay": 0},
		"":                   {"added.delay": 0}, // the others wait until somebody has chosen
	} {
		withDiscovery(t, start, func(d *discovery, source *scriptedSource, look func() error) {
			source.found, source.complete = []toldPartition{seen}, false
			if err := look(); err != nil {
				t.Fatal(err)
			}
			first := source.starts()["seen.delay"]
			if first != want["seen.delay"] || d.Store.State().Surveyed {
				t.Errorf("start %q: the incomplete look begins at %d, surveyed: %v", start, first, d.Store.State().Surveyed)
			}
			source.found, source.complete = []toldPartition{seen, hidden}, true
			confirm(t, look)
			if !d.Store.State().Surveyed {
				t.Errorf("start %q: not surveyed", start)
			}
			source.found = []toldPartition{seen, hidden, added}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, source.starts()); diff != "" {
				t.Errorf("start %q (-want +got):\n%s", start, diff)
			}
		})
	}
}

func TestDiscovery_lagIsUnknownWhileKafkaDoesNotAnswer(t *testing.T) {
	withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []toldPartition{toldOf("in.delay", 2, 10)}
		for _, test := range []struct {
			err  error
			want string
		}{{errors.New("no answer"), "unknown"}, {nil, "8"}, {errors.New("no answer"), "unknown"}, {nil, "8"}} {
			source.err = test.err
			if err := look(); err != nil {
				t.Fatal(err)
			}
			got := "unknown"
			if lag := d.Report.Read().Lag; lag != nil {
				got = fmt.Sprint(*lag)
			}
			if got != test.want {
				t.Errorf("after %v: lag %s, want %s", test.err, got, test.want)
			}
		}
	})
}

func TestDiscovery_remindsEveryMinuteThatKafkaIsAway(t *testing.T) {
	withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		var log strings.Builder
		d.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		for second := range 150 {
			source.err = errors.New("no answer")
			if second >= 130 {
				source.err = nil
			}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		want := `level=ERROR msg="cannot list the delay topics, trying on" error="no answer"
level=ERROR msg="still cannot list the delay topics" for=1m0s error="no answer"
level=ERROR msg="still cannot list the delay topics" for=2m0s error="no answer"
level=INFO msg="Kafka answers again" after=2m10s
`
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestDiscovery_saysWhatWaitsForAStart(t *testing.T) {
	withDiscovery(t, "", func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []toldPartition{toldOf("old.delay", 0, 7), toldOf("new.delay", 0, 0)}
		for range 2 {
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]int64{"new.delay": 0}, source.starts()); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if problems := d.Report.Read().Problems; len(problems) != 1 || !strings.Contains(problems[0], "old.delay/0: set routes[].start") {
				t.Errorf("problems %q, want the partition and the remedy", problems)
			}
		}
		d.Config.Routes[0].Start = config.StartLatest
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int64{"new.delay": 0, "old.delay": 7}, source.starts()); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		if problems := d.Report.Read().Problems; len(problems) != 0 {
			t.Errorf("problems %q, want none", problems)
		}
	})
}

// Offsets are asked by name: they may be those of the topic that was created in its place.
func TestDiscovery_topicRecreatedDuringALookIsLeftOut(t *testing.T) {
	withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []toldPartition{toldOf("in.delay", 0, 7)}
		source.asked = func() { source.found[0].TopicID[0]++ }
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if positions := d.Store.State().Positions; len(positions) != 0 {
			t.Errorf("positions %+v from the offsets of another topic", positions)
		}
		source.asked = nil
		confirm(t, look)
		if positions := d.Store.State().Positions; len(positions) != 1 || positions[0].TopicID != source.found[0].TopicID {
			t.Errorf("positions %+v, want those of the new topic", positions)
		}
	})
}

// Offsets are asked by name, and one who has not heard that a topic was created again tells those of the topic before, in
// epochs that may be as high. Nothing is decided by them, whether that topic was ever seen here or not.
func TestDiscovery_believesNobodyWhoHasTheTopicOfBefore(t *testing.T) {
	const name = "in.delay"
	for what, test := range map[string]struct {
		start    string
		surveyed bool
		stale    toldPartition
		created  toldPartition
		want     int64
	}{
		"at birth, from the end":       {config.StartLatest, false, toldOf(name, 0, 70), toldOf(name, 0, 10), 10},
		"at birth, from the beginning": {config.StartEarliest, false, toldOf(name, 70, 70), toldOf(name, 2, 10), 2},
		"later":                        {config.StartLatest, true, toldOf(name, 70, 70), toldOf(name, 0, 10), 0},
		"later, not trimmed":           {config.StartLatest, true, toldOf(name, 0, 70), toldOf(name, 0, 10), 0},
		"later, of an old topic":       {config.StartLatest, true, toldOf(name, 70, 80), toldOf(name, 20, 30), 20},
	} {
		withDiscovery(t, test.start, func(d *discovery, source *scriptedSource, look func() error) {
			if test.surveyed {
				confirm(t, look)
			}
			test.stale.TopicID, test.stale.Epoch = TopicID{1}, 4
			source.found, source.stale = []toldPartition{test.created}, []toldPartition{test.stale}
			lookFor(t, source, look, time.Minute)
			if starts := source.starts(); len(starts) != 0 {
				t.Errorf("%s: begins at %v by what was told of another topic", what, starts)
			}
			source.stale = nil
			lookFor(t, source, look, 2*time.Second)
			if next, ok := source.starts()[name]; !ok || next != test.want {
				t.Errorf("%s: begins at %d, want %d", what, next, test.want)
			}
			if p := d.Store.State().Positions; len(p) != 1 || p[0].Epoch != test.created.Epoch {
				t.Errorf("%s: positions %+v, want one, and no epoch of another topic", what, p)
			}
		})
	}
}

// Records that were deleted before they were read are passed over only where they were, not in a topic that came after.
func TestDiscovery_passesOverWhatWasDeletedInThisTopicOnly(t *testing.T) {
	withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		d.Count = refusedCount{}
		source.found = []toldPartition{toldOf("in.delay", 0, 10)}
		confirm(t, look)
		stale := toldOf("in.delay", 5, 5)
		stale.TopicID = TopicID{1}
		source.stale = []toldPartition{stale}
		source.failures = []SourceFailure{{TopicID: source.found[0].TopicID, Err: errors.New("cannot fetch")}}
		lookFor(t, source, look, time.Minute)
		if next := source.starts()["in.delay"]; next != 0 {
			t.Errorf("reading goes on at %d by what was told of another topic", next)
		}
		source.stale, source.found[0].Earliest = nil, 7
		confirm(t, look)
		if next := source.starts()["in.delay"]; next != 7 {
			t.Errorf("reading goes on at %d, want 7: the records before are gone", next)
		}
	})
}

// What was read is given up for what another log has, and found to be there, only by those who have the topic.
func TestDiscovery_concludesNothingOfWhatWasReadFromAnotherTopic(t *testing.T) {
	for what, test := range map[string]struct {
		stale OffsetsAnswer // of the topic before, as a new leader tells it that has not heard of this one
		told  OffsetsAnswer // what it tells later
		want  int64         // where reading goes on in the end
	}{
		"one that was shorter":           {OffsetsAnswer{Latest: 10, Epoch: 5, ReadEnd: -1}, OffsetsAnswer{Latest: 95, Epoch: 5, ReadEnd: -1}, 95},
		"one that had all that was read": {OffsetsAnswer{Latest: 1000, Epoch: 5, ReadEnd: 500}, OffsetsAnswer{Latest: 3, Epoch: 5, ReadEnd: 2}, 2},
	} {
		withDiscovery(t, config.StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
			d.Count = refusedCount{}
			topic := toldOf("in.delay", 0, 100)
			topic.Epoch = 1
			source.found = []toldPartition{topic}
			confirm(t, look)
			read := d.Store.State().Positions[0]
			read.Next = 100
			if _, err := d.Log.Propose(context.Background(), raftfsm.SetPositions{Sets: []raftfsm.PositionSet{{Position: read}}}).Wait(context.Background()); err != nil {
				t.Fatal(err)
			}
			next := func() int64 { return d.Store.State().Positions[0].Next }

			source.found[0].OffsetsAnswer = test.told
			source.stale = []toldPartition{{Topic: topic.Topic, TopicID: TopicID{1}, OffsetsAnswer: test.stale}}
			lookFor(t, source, look, 10*time.Second)
			source.stale = nil
			if err := look(); err != nil || next() != 100 {
				t.Errorf("%s: reading goes on at %d by one answer of who has the topic, %v", what, next(), err)
			}
			confirm(t, look)
			if next() != test.want {
				t.Errorf("%s: reading goes on at %d, want %d", what, next(), test.want)
			}
		})
	}
}
