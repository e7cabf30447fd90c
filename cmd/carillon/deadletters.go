package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/kafka"
)

// createDeadLetterTopics creates those that are missing, so that the first mistake
// of a producer has a place to go. It tries until Kafka answers or ctx ends; where
// Kafka refuses, the topic is left to the operator, and dead letters wait for it.
func createDeadLetterTopics(ctx context.Context, c broker.Config, connection kafka.Config, log *slog.Logger) {
	const patience, pause = 10 * time.Second, 2 * time.Second
	topics := map[string]bool{c.DeadLetter.Topic: true}
	for _, r := range c.Routes {
		topics[c.DeadLetterTopic(r)] = true
	}
	for len(topics) > 0 {
		for topic := range topics {
			attempt, cancel := context.WithTimeout(ctx, patience)
			err := kafka.CreateTopic(attempt, connection, topic)
			cancel()
			var refusal *kerr.Error
			switch {
			case err == nil:
				delete(topics, topic)
			case errors.As(err, &refusal) && !refusal.Retriable:
				log.Warn("create the dead-letter topic yourself: Kafka does not let us", "topic", topic, "error", err)
				delete(topics, topic)
			default:
				log.Debug("dead-letter topic not created yet", "topic", topic, "error", err)
			}
		}
		if len(topics) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
