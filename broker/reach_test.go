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
			b.newSource, _ = prompt(func() (ingest.Source, error) { return source, nil }, nil)
			b.reach = newReach(b)
			go b.reach.looks(t.Context())
			if err := b.ReachKafka(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
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
		b.reach = newReach(b)
		go b.reach.looks(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		ask := func() {
			all.Go(func() {
				asked := begun.Load()
				if err := b.ReachKafka(t.Context()); err != nil {
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
		if err := b.ReachKafka(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is told %v", err)
		}
		// Nor is Kafka asked without end: looks begin a second apart.
		takes, began = 0, time.Now()
		for range 3 {
			if err := b.ReachKafka(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 2*lookAgain {
			t.Errorf("three looks took %v", took)
		}
	})
}
