package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A scriptedSource answers Discover as the test says and remembers what is assigned.
type scriptedSource struct {
	Source
	found    []SourcePartition
	complete bool
	err      error
	assigned []SourcePosition
}

func (s *scriptedSource) Discover(context.Context) ([]SourcePartition, bool, error) {
	return s.found, s.complete, s.err
}

func (s *scriptedSource) Assign(positions []SourcePosition) { s.assigned = positions }

// withDiscovery runs test with the discovery of a new cluster, whose route begins at start.
func withDiscovery(t *testing.T, start string, test func(d *discovery, source *scriptedSource, look func() error)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		node := openNode(t, ctx)
		config, source := DefaultConfig(), &scriptedSource{complete: true}
		config.Routes[0].Start = start
		d := newDiscovery(ingestConfig{
			Config: config, Source: source, Log: node, Store: node.Store(), Now: time.Now, Report: newTermReport(),
		}, slog.New(slog.DiscardHandler))
		test(d, source, func() error { return d.round(ctx) })
		cancel()
		synctest.Wait()
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
}

func sourcePartition(topic string, earliest, latest int64) SourcePartition {
	return SourcePartition{Topic: topic, TopicID: TopicID([]byte((topic + "................")[:16])), Earliest: earliest, Latest: latest}
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
	seen, hidden, added := sourcePartition("seen.delay", 2, 10), sourcePartition("hidden.delay", 3, 20), sourcePartition("added.delay", 0, 5)
	for start, want := range map[string]map[string]int64{
		StartEarliest: {"seen.delay": 2, "hidden.delay": 3, "added.delay": 0},
		StartLatest:   {"seen.delay": 10, "hidden.delay": 20, "added.delay": 0},
		"":            {"added.delay": 0}, // the others wait until somebody has chosen
	} {
		withDiscovery(t, start, func(d *discovery, source *scriptedSource, look func() error) {
			source.found, source.complete = []SourcePartition{seen}, false
			if err := look(); err != nil {
				t.Fatal(err)
			}
			first := source.starts()["seen.delay"]
			if first != want["seen.delay"] || d.Store.State().Surveyed {
				t.Errorf("start %q: the incomplete look begins at %d, surveyed: %v", start, first, d.Store.State().Surveyed)
			}
			source.found, source.complete = []SourcePartition{seen, hidden}, true
			if err := look(); err != nil || !d.Store.State().Surveyed {
				t.Errorf("start %q: surveyed %v, %v", start, d.Store.State().Surveyed, err)
			}
			source.found = []SourcePartition{seen, hidden, added}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, source.starts()); diff != "" {
				t.Errorf("start %q (-want +got):\n%s", start, diff)
			}
		})
	}
}

func TestDiscovery_lostRecordsEndTheTermAtTheNewPosition(t *testing.T) {
	for _, lost := range []SourcePartition{sourcePartition("in.delay", 50, 60), sourcePartition("in.delay", 0, 5)} {
		withDiscovery(t, StartLatest, func(d *discovery, source *scriptedSource, look func() error) {
			source.found = []SourcePartition{sourcePartition("in.delay", 0, 10)}
			if err := look(); err != nil {
				t.Fatal(err)
			}
			source.found = []SourcePartition{lost}
			if err := look(); !errors.Is(err, errPositionMoved) {
				t.Errorf("the term goes on with %v", err)
			}
			if next := d.Store.State().Positions[0].Next; next != lost.Earliest && next != lost.Latest {
				t.Errorf("reading goes on at %d of %d to %d", next, lost.Earliest, lost.Latest)
			}
		})
	}
}

func TestDiscovery_lagIsUnknownWhileKafkaDoesNotAnswer(t *testing.T) {
	withDiscovery(t, StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
		source.found = []SourcePartition{sourcePartition("in.delay", 2, 10)}
		for _, test := range []struct {
			err  error
			want string
		}{{errors.New("no answer"), "unknown"}, {nil, "8"}, {errors.New("no answer"), "unknown"}, {nil, "8"}} {
			source.err = test.err
			if err := look(); err != nil {
				t.Fatal(err)
			}
			got := "unknown"
			if lag := d.Report.read().lag; lag != nil {
				got = fmt.Sprint(*lag)
			}
			if got != test.want {
				t.Errorf("after %v: lag %s, want %s", test.err, got, test.want)
			}
		}
	})
}

func TestDiscovery_remindsEveryMinuteThatKafkaIsAway(t *testing.T) {
	withDiscovery(t, StartEarliest, func(d *discovery, source *scriptedSource, look func() error) {
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
		source.found = []SourcePartition{sourcePartition("old.delay", 0, 7), sourcePartition("new.delay", 0, 0)}
		for range 2 {
			if err := look(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]int64{"new.delay": 0}, source.starts()); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if problems := d.Report.read().problems; len(problems) != 1 || !strings.Contains(problems[0], "old.delay/0: set routes[].start") {
				t.Errorf("problems %q, want the partition and the remedy", problems)
			}
		}
		d.Config.Routes[0].Start = StartLatest
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int64{"new.delay": 0, "old.delay": 7}, source.starts()); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		if problems := d.Report.read().problems; len(problems) != 0 {
			t.Errorf("problems %q, want none", problems)
		}
	})
}
