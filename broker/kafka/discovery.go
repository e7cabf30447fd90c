package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/ingest"
)

// discoverTimeout bounds one question to Kafka.
const discoverTimeout = 5 * time.Second

// Topics returns what Kafka says of the named topics, or of all that match; see [broker.Source]. Both
// topics and partitions are sorted. Kafka is asked past what the client remembers.
func (s *Source) Topics(ctx context.Context, names []string) (topics []ingest.SourceTopic, looked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	answer, err := s.asking.ask(ctx, func() kmsg.Request {
		request := kmsg.NewPtrMetadataRequest() // no topics: all of them
		if names != nil {
			request.Topics = []kmsg.MetadataRequestTopic{}
		}
		for i := range names {
			request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &names[i]})
		}
		return request
	})
	if err != nil {
		return nil, 0, cannotAsk("list topics", err)
	}
	response := answer.(*kmsg.MetadataResponse)
	for i := range response.Topics {
		told := &response.Topics[i]
		if told.Topic == nil || !s.matches(*told.Topic) {
			continue
		}
		topic := sourceTopicOf(told)
		if topic.Err == nil && topic.TopicID == (ingest.TopicID{}) {
			return nil, 0, fmt.Errorf("kafka.brokers %s: topic %q: %w", strings.Join(s.brokers, ","), topic.Topic, errNoTopicID)
		}
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(a, b ingest.SourceTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return topics, len(response.Topics), nil
}

func sourceTopicOf(told *kmsg.MetadataResponseTopic) ingest.SourceTopic {
	topic := ingest.SourceTopic{Topic: *told.Topic, TopicID: told.TopicID, Err: sourceError(kerr.ErrorForCode(told.ErrorCode))}
	if topic.Err != nil {
		return topic
	}
	for _, p := range told.Partitions {
		leader := ingest.SourceLeader{Partition: p.Partition, Leader: p.Leader, Epoch: p.LeaderEpoch}
		if p.ErrorCode != 0 && !errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.ReplicaNotAvailable) {
			leader.Leader = -1
		}
		topic.Partitions = append(topic.Partitions, leader)
	}
	slices.SortFunc(topic.Partitions, func(a, b ingest.SourceLeader) int { return cmp.Compare(a.Partition, b.Partition) })
	return topic
}

// sourceError wraps what Kafka says of a delay topic in the sentinel of the broker that it stands for.
func sourceError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("%w: %w", ingest.ErrSourceMissing, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%w: %w", ingest.ErrSourceForbidden, err)
	}
	return err
}
