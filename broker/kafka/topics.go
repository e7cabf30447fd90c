package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// CreateTopic creates the topic, with Kafka's defaults for partitions and replication, unless it exists; see
// [broker.Sink]. It blocks for a round trip or two, or until ctx ends.
func (s *Sink) CreateTopic(ctx context.Context, topic string, batchBytes int) error {
	admin, limit := kadm.NewClient(s.questions.client), strconv.Itoa(batchBytes)
	_, err := admin.CreateTopic(ctx, -1, -1, map[string]*string{batchLimit: &limit}, topic)
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
		refusal := err
		if _, err = admin.CreateTopic(ctx, -1, -1, nil, topic); err == nil {
			s.log.Warn("Kafka refuses a limit this high, the topic has the default: large records may not fit",
				"topic", topic, batchLimit, batchBytes, "error", refusal)
		}
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}
