package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillonmq/carillon/broker/ingest"
)

// createEvery is how often the dead-letter topics are looked after: one that was
// deleted comes back before its letters have waited for long.
const createEvery = 30 * time.Second

// mostDeadLetter is the batch, in bytes, that a dead-letter topic takes if we create
// it: the largest record that is scheduled, what a dead letter adds, and Kafka's frame.
const mostDeadLetter = ingest.MostRecord + 1<<20

// keepDeadLetterTopics creates the dead-letter topics when they are missing, until
// ctx ends. That Kafka does not let us is logged once: somebody else has to create
// them then, and letters wait for it.
func keepDeadLetterTopics(ctx context.Context, topics []string, create func(context.Context, string, int) error, log *slog.Logger) error {
	tick := time.NewTicker(createEvery)
	defer tick.Stop()
	failed := make(map[string]bool)
	for {
		for _, topic := range topics {
			err := create(ctx, topic, mostDeadLetter)
			if err != nil && ctx.Err() == nil && !failed[topic] {
				log.Warn("cannot see to the dead-letter topic, trying on: if Kafka refuses, create it or let this node do so", "topic", topic, "error", err)
			}
			failed[topic] = err != nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
