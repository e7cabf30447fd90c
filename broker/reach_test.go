package broker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

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
			if err := b.ReachKafka(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}
