package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonmq/carillon/broker/ingest"
)

const (
	// closePatience is how long the end of a term waits for each Kafka client to close.
	closePatience = 500 * time.Millisecond
	// topicsPatience is how long Kafka may take to name topics. A client that connects
	// to a broker that hangs would take three times as long to say that it does not,
	// and leadership would wait for that before it goes to a node that Kafka answers.
	topicsPatience = 5 * time.Second
)

// beside calls f and returns when f has, or as soon as ctx ends. A Kafka client may take
// ten seconds to hear that, while it connects to a broker that hangs; the end of a term,
// and the leadership that is to be handed over, do not wait for it. The call then ends
// by itself, and whatever it says is dropped: f must touch nothing else.
func beside[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// closeBeside waits for closing, for closePatience at most.
func closeBeside(closing func()) {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	_, _ = beside(ctx, func() (struct{}, error) {
		closing()
		return struct{}{}, nil
	})
}

// prompt returns constructors of sources and sinks that hear contexts at once.
func prompt(newSource func() (ingest.Source, error), newSink func() (Sink, error)) (func() (ingest.Source, error), func() (Sink, error)) {
	source := func() (ingest.Source, error) {
		s, err := newSource()
		if err != nil {
			return nil, err
		}
		return promptSource{s}, nil
	}
	sink := func() (Sink, error) {
		s, err := newSink()
		if err != nil {
			return nil, err
		}
		return promptSink{s}, nil
	}
	return source, sink
}

// A promptSource is a Source that hears contexts at once.
type promptSource struct{ ingest.Source }

func (s promptSource) Topics(ctx context.Context, names []string) ([]ingest.SourceTopic, int, error) {
	type answer struct {
		topics []ingest.SourceTopic
		looked int
	}
	waiting, cancel := context.WithTimeout(ctx, topicsPatience)
	defer cancel()
	a, err := beside(waiting, func() (answer, error) {
		topics, looked, err := s.Source.Topics(waiting, names)
		return answer{topics, looked}, err
	})
	if err != nil && err == waiting.Err() && ctx.Err() == nil { // the client itself does not say so yet
		err = fmt.Errorf("list topics: no answer within %v: check kafka.brokers and that Kafka runs: %w", topicsPatience, err)
	}
	return a.topics, a.looked, err
}

func (s promptSource) Offsets(ctx context.Context, questions []ingest.OffsetsQuestion) ([]ingest.OffsetsAnswer, error) {
	return beside(ctx, func() ([]ingest.OffsetsAnswer, error) { return s.Source.Offsets(ctx, questions) })
}

func (s promptSource) Close() { closeBeside(s.Source.Close) }

// A promptSink is a Sink that hears contexts at once. What asks for partitions, the
// prober, sees to that itself.
type promptSink struct{ Sink }

func (s promptSink) CreateTopic(ctx context.Context, topic string, batchBytes int) error {
	_, err := beside(ctx, func() (struct{}, error) {
		return struct{}{}, s.Sink.CreateTopic(ctx, topic, batchBytes)
	})
	return err
}

func (s promptSink) Close() { closeBeside(s.Sink.Close) }
