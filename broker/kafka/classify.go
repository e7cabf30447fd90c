package kafka

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/carillonmq/carillon/broker/deliver"
)

// classify wraps Kafka's error in the sentinel of package deliver that it stands for. Only what is certain to
// be the fault of topic or record is called permanent: what is denied to us as a whole may be granted
// again, and is the fault of no message.
func classify(topic string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException):
		return &topicError{topic, deliver.ErrTargetMissing, err}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &topicError{topic, deliver.ErrTargetForbidden, err}
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return &topicError{topic, deliver.ErrRecordTooLarge, err}
	case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.PolicyViolation),
		errors.Is(err, kerr.UnsupportedForMessageFormat):
		return &topicError{topic, deliver.ErrRecordRefused, err}
	case errors.Is(err, kerr.InvalidTimestamp): // the client stamps each record with the time of this node
		err = fmt.Errorf("the clocks of this node and of the Kafka broker differ by more than the topic allows, set them: %w", err)
	}
	return &topicError{topic, deliver.ErrTargetUnavailable, err}
}

// classify wraps the error of a record that went out with the line. While it is not known that the line has a producer id, the
// error may be what Kafka answered to the question for one, and is the fault of no record. The caller holds mu.
func (l *line) classify(topic string, err error) error {
	failure := classify(topic, err)
	if !l.hasID && (errors.Is(failure, deliver.ErrRecordTooLarge) || errors.Is(failure, deliver.ErrRecordRefused)) {
		return &topicError{topic, deliver.ErrTargetUnavailable, err}
	}
	return failure
}

// A topicError writes its text only when somebody reads it: of missing topics there may be a hundred
// thousand, each asked for now and then.
type topicError struct {
	topic    string
	sentinel error // of package deliver
	cause    error // Kafka's, or the client's
}

func (e *topicError) Error() string {
	return fmt.Sprintf("topic %q: %v: %v", e.topic, e.sentinel, e.cause)
}

func (e *topicError) Is(target error) bool { return target == e.sentinel }

func (e *topicError) Unwrap() error { return e.cause }

// isNoPartition tells whether the client does not know the partition, for which franz-go has no sentinel.
func isNoPartition(err error) bool {
	return strings.Contains(err.Error(), "invalid record partitioning choice")
}
