package broker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/clock"
	"github.com/carillonmq/carillon/broker/fitness"
	"github.com/carillonmq/carillon/broker/ingest"
)

// A hungSource hears no deadline, as a Kafka client that connects to a frozen broker.
type hungSource struct {
	ingest.Source
	topics  bool // answers that there are none, and hangs when asked for offsets
	release chan struct{}
}

func (s hungSource) Topics(context.Context, []string) ([]ingest.SourceTopic, int, error) {
	if !s.topics {
		<-s.release
	}
	return nil, 0, nil
}

func (s hungSource) Offsets(ctx context.Context, _ []ingest.OffsetsQuestion) ([]ingest.OffsetsAnswer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s hungSource) Close() {}

func TestReachKafka_saysWhatWasAskedOfAFrozenKafka(t *testing.T) {
	for want, topics := range map[string]bool{
		"list topics: no answer within 5s: check kafka.brokers and that Kafka runs: ":              false,
		"look at the delay topics: no answer within 7s: check kafka.brokers and that Kafka runs: ": true,
	} {
		synctest.Test(t, func(t *testing.T) {
			source := hungSource{topics: topics, release: make(chan struct{})}
			defer close(source.release)
			b := &Broker{}
			b.survey = surveyed
			b.newSource, _ = prompt(func() (ingest.Source, error) { return source, nil }, nil)
			b.reach = newReach(b, func() error { return nil })
			go b.reach.looks(t.Context())
			if _, err := b.ReachKafka(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func surveyed(context.Context) (reached, unreached []int32, err error) {
	return []int32{1, 2}, nil, nil
}

// A slowSource takes a while to list topics, and counts who began to.
type slowSource struct {
	ingest.Source
	begun *atomic.Int32
	takes time.Duration
}

func (s slowSource) Topics(context.Context, []string) ([]ingest.SourceTopic, int, error) {
	s.begun.Add(1)
	time.Sleep(s.takes) // of the bubble
	return nil, 0, nil
}

func (s slowSource) Offsets(context.Context, []ingest.OffsetsQuestion) ([]ingest.OffsetsAnswer, error) {
	return nil, nil
}

func (s slowSource) Close() {}

// Anybody may ask: however many do, nobody waits for more than the look that is taken and the next one.
func TestReachKafka_isSharedByThoseWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		takes := 3 * time.Second
		b := &Broker{}
		b.survey = surveyed
		b.newSource, _ = prompt(func() (ingest.Source, error) { return slowSource{begun: &begun, takes: takes}, nil }, nil)
		b.reach, b.skew = newReach(b, func() error { return nil }), newSkew(b)
		go b.reach.looks(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		ask := func() {
			all.Go(func() {
				asked := begun.Load()
				if _, err := b.ReachKafka(t.Context()); err != nil {
					t.Error(err)
				}
				if begun.Load() == asked {
					t.Error("answered by a look that had begun before it was asked for")
				}
			})
		}
		ask()
		time.Sleep(time.Second)
		for range 1000 {
			ask()
		}
		all.Wait()
		if looks, took := begun.Load(), time.Since(began); looks != 2 || took != 6*time.Second {
			t.Errorf("%d looks in %v", looks, took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.ReachKafka(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is told %v", err)
		}
		// Nor is Kafka asked without end: looks begin a second apart.
		takes, began = 0, time.Now()
		for range 3 {
			if _, err := b.ReachKafka(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 2*lookAgain {
			t.Errorf("three looks took %v", took)
		}
	})
}

// Who cannot lead better is not asked to. An older program does not tell whether it has room.
func TestBetter_isWhoLacksLess(t *testing.T) {
	answers := []response{
		{"n2", Reached{Reached: true}, nil},
		{"n3", Reached{}, errors.New("list topics: no answer")},
	}
	fit := response{"n4", Reached{Reached: true, Room: true}, nil}
	noRoom := errors.New("no room")
	for name, test := range map[string]struct {
		here    fitness.Lack
		answers []response
		want    string
	}{
		"Kafka is silent, one has room":          {fitness.Lack{Silent: reachPatience}, append(answers, fit), "n4"},
		"Kafka is silent, one lacks room":        {fitness.Lack{Silent: reachPatience}, answers, "n2"},
		"no room, one has":                       {fitness.Lack{Cramped: reachPatience, NoRoom: noRoom}, append(answers, fit), "n4"},
		"no room, nobody has":                    {fitness.Lack{Cramped: reachPatience, NoRoom: noRoom}, answers, ""},
		"no room, Kafka was silent for a moment": {fitness.Lack{Silent: time.Second, Cramped: reachPatience, NoRoom: noRoom}, answers, ""},
		"neither, nobody has room":               {fitness.Lack{Silent: reachPatience, Cramped: time.Hour, NoRoom: noRoom}, answers, "n2"},
	} {
		able, refusals := better(test.answers, test.here, survey{})
		if got := strings.Join(able, " "); got != test.want {
			t.Errorf("%s: %q would lead better, want %q", name, got, test.want)
		}
		if want := "n2: it has no room for messages, or its program does not tell; n3: list topics: no answer"; refusals.Error() != want {
			t.Errorf("%s: refusals %q, want %q", name, refusals, want)
		}
	}
}

// Two that reach half of the Kafka brokers each would take turns.
func TestBetter_reachesAllThatThisNodeReachesAndMore(t *testing.T) {
	unreached := fitness.Lack{Partial: reachPatience, Unreached: []string{"kafka3:9092"}}
	full := fitness.Lack{Cramped: reachPatience, NoRoom: errors.New("no room")}
	for name, test := range map[string]struct {
		here   fitness.Lack
		theirs []int32
		want   bool
	}{
		"all":                            {unreached, []int32{3, 2, 1}, true},
		"the same":                       {unreached, []int32{2, 1}, false},
		"fewer":                          {unreached, []int32{2}, false},
		"as many, others":                {unreached, []int32{2, 3}, false},
		"more, and not one of ours":      {unreached, []int32{2, 3, 4}, false},
		"one that is not known here yet": {unreached, []int32{1, 2, 4}, false},
		"an older program":               {unreached, nil, false},
		"no room here, all":              {full, []int32{1, 2}, true},
		"no room here, fewer":            {full, []int32{2, 3}, false},
		"no room here, an older program": {full, nil, true},
		"Kafka is silent here, fewer":    {fitness.Lack{Silent: reachPatience, Partial: reachPatience}, []int32{2}, true},
	} {
		able, refusals := better([]response{{"n2", Reached{Reached: true, Room: true, Brokers: test.theirs}, nil}}, test.here, survey{reached: []int32{1, 2}, unreached: []int32{3}})
		if got := len(able) == 1; got != test.want || (refusals.Error() == "") != test.want {
			t.Errorf("%s: would lead better: %t (%v), want %t", name, got, refusals, test.want)
		}
	}
}

// A node whose clock is wrong would hand leadership back to whoever gives it.
func TestReachKafka_isAnErrorWhereTheClockIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		b := &Broker{}
		b.survey = surveyed
		b.newSource, _ = prompt(func() (ingest.Source, error) { return slowSource{begun: &begun}, nil }, nil)
		b.reach, b.skew = newReach(b, func() error { return nil }), newSkew(b)
		go b.reach.looks(t.Context())
		if _, err := b.ReachKafka(t.Context()); err != nil {
			t.Error(err)
		}
		b.skew.status.Standing = string(clock.Skewed)
		if _, err := b.ReachKafka(t.Context()); !errors.Is(err, errClockWrong) {
			t.Errorf("%v, want that the clock is wrong", err)
		}
	})
}
