package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// CreateTopic creates the topic, with Kafka's defaults for partitions and replication, unless it exists.
// It blocks for a round trip, or until ctx ends. It logs nothing: its error says all.
func CreateTopic(ctx context.Context, c Config, topic string) error {
	c.Logger = slog.New(slog.DiscardHandler)
	options, err := c.Options()
	if err != nil {
		return err
	}
	admin, err := kadm.NewOptClient(options...)
	if err != nil {
		return fmt.Errorf("create Kafka client: %w", err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopic(ctx, -1, -1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}
