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
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/report"
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
			b.newSource, _ = prompt(func() (ingest.Source, error) { return source, nil }, nil)
			b.reach = newReach(b, func() error { return nil })
			go b.reach.looks(t.Context())
			if _, err := b.ReachKafka(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
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
		here    lack
		answers []response
		want    string
	}{
		"Kafka is silent, one has room":          {lack{silent: reachPatience}, append(answers, fit), "n4"},
		"Kafka is silent, one lacks room":        {lack{silent: reachPatience}, answers, "n2"},
		"no room, one has":                       {lack{cramped: reachPatience, noRoom: noRoom}, append(answers, fit), "n4"},
		"no room, nobody has":                    {lack{cramped: reachPatience, noRoom: noRoom}, answers, ""},
		"no room, Kafka was silent for a moment": {lack{silent: time.Second, cramped: reachPatience, noRoom: noRoom}, answers, ""},
		"neither, nobody has room":               {lack{silent: reachPatience, cramped: time.Hour, noRoom: noRoom}, answers, "n2"},
	} {
		able, refusals := better(test.answers, test.here)
		if got := strings.Join(able, " "); got != test.want {
			t.Errorf("%s: %q would lead better, want %q", name, got, test.want)
		}
		if want := "n2: it has no room for messages, or its program does not tell; n3: list topics: no answer"; refusals.Error() != want {
			t.Errorf("%s: refusals %q, want %q", name, refusals, want)
		}
	}
}

// A disk that is behind with its flushes has room for moments only, again and again: that is no reason to move.
func TestFitness_knowsALackWithoutAGap(t *testing.T) {
	noRoom := errors.New("no room")
	for name, test := range map[string]struct {
		room  func(since time.Duration) error
		lasts bool
	}{
		"room for 150 ms of each second, never at a look at Kafka": {func(since time.Duration) error {
			if moment := since % time.Second; moment > 500*time.Millisecond && moment < 650*time.Millisecond {
				return nil
			}
			return noRoom
		}, false},
		"none": {func(time.Duration) error { return noRoom }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			said := report.New()
			here := fitness{report: said, room: func() error { return test.room(time.Since(began)) }}
			lasted := false
			looks := time.NewTicker(time.Second)
			defer looks.Stop()
			for time.Since(began) < 5*time.Minute {
				select {
				case <-looks.C:
					said.HearKafka(true, time.Now())
				case <-here.roomMayReturn():
				}
				found, fit := here.look()
				if fit > 0 && found.lasts() > 0 {
					t.Fatalf("%s: fit for %v though %v", name, fit, found)
				}
				lasted = lasted || found.lasts() >= reachPatience
			}
			if lasted != test.lasts {
				t.Errorf("%s: a lack of ten seconds was found: %t", name, lasted)
			}
		})
	}
}

// A node whose clock is wrong would hand leadership back to whoever gives it.
func TestReachKafka_isAnErrorWhereTheClockIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		b := &Broker{}
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
