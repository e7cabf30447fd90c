package kafka

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/carillonmq/carillon/broker"
)

// classify wraps Kafka's error in the sentinel of the broker that it stands for. Only what is certain to
// be the fault of topic or record is called permanent: what is denied to us as a whole may be granted
// again, and is the fault of no message.
func classify(topic string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException):
		return fmt.Errorf("topic %q: %w: %w", topic, broker.ErrTargetMissing, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("topic %q: %w: %w", topic, broker.ErrTargetForbidden, err)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return fmt.Errorf("topic %q: %w: %w", topic, broker.ErrRecordTooLarge, err)
	case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.PolicyViolation),
		errors.Is(err, kerr.UnsupportedForMessageFormat):
		return fmt.Errorf("topic %q: %w: %w", topic, broker.ErrRecordRefused, err)
	}
	return fmt.Errorf("topic %q: %w: %w", topic, broker.ErrTargetUnavailable, err)
}

// isNoPartition tells whether the client does not know the partition, for which franz-go has no sentinel.
func isNoPartition(err error) bool {
	return strings.Contains(err.Error(), "invalid record partitioning choice")
}
