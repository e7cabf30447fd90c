package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// CreateTopic creates the topic, with Kafka's defaults for partitions and replication, unless it exists.
// It blocks for a round trip, or until ctx ends.
func (s *Sink) CreateTopic(ctx context.Context, topic string) error {
	client, giveBack, err := s.borrow()
	if err != nil {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	defer giveBack()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, -1, -1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}
