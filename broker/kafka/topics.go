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
	s.mu.Lock()
	admin := kadm.NewClient(s.shared.client)
	s.mu.Unlock()
	if _, err := admin.CreateTopic(ctx, -1, -1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}
