package kafka

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker"
)

// A target that returns to the shared connection which it had left makes the sink renew it.
func TestQuestionOutlivesTheSharedConnection(t *testing.T) {
	for name, question := range map[string]struct {
		key kmsg.Key
		ask func(context.Context, *Sink) error
	}{
		"CreateTopic": {kmsg.CreateTopics, func(ctx context.Context, s *Sink) error { return s.CreateTopic(ctx, "dead", defaultBatchBytes) }},
		"Partitions": {kmsg.Metadata, func(ctx context.Context, s *Sink) error {
			_, err := countOf(ctx, s, "bills")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				if _, err := deliver(sink, broker.Delivery{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}
				first := sink.shared
				sink.Isolate("orders")
				if _, err := deliver(sink, broker.Delivery{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}

				release := kafka.hang(question.key)
				answer := make(chan error, 1)
				go func() { answer <- question.ask(t.Context(), sink) }()
				synctest.Wait()
				if _, err := deliver(sink, broker.Delivery{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}
				if sink.shared == first {
					t.Fatal("the shared connection was not renewed")
				}
				synctest.Wait()
				release()
				if err := <-answer; err != nil {
					t.Errorf("asked on the connection before: %v", err)
				}
				synctest.Wait()
				if first.client.Context().Err() == nil {
					t.Error("the connection before is open though nobody uses it")
				}
			}, kfake.SeedTopics(1, "orders", "bills"))
		})
	}
}
