package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker"
)

// discoverTimeout bounds one look at Kafka.
const discoverTimeout = 5 * time.Second

// Discover lists every partition of every topic that matches, sorted by topic and partition. One that
// Kafka cannot tell the offsets of, because it has no leader for now, is left out.
func (s *Source) Discover(ctx context.Context) ([]broker.SourcePartition, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	topics, err := s.admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	names := slices.DeleteFunc(topics.Names(), func(name string) bool { return topics[name].Err != nil || !s.matches(name) })
	if len(names) == 0 {
		return nil, nil // no names would list the offsets of every topic
	}
	first, err := s.admin.ListStartOffsets(ctx, names...)
	if err != nil && !isPartial(err) {
		return nil, fmt.Errorf("list first offsets: %w", err)
	}
	end, err := s.admin.ListCommittedOffsets(ctx, names...)
	if err != nil && !isPartial(err) {
		return nil, fmt.Errorf("list last committed offsets: %w", err)
	}
	after, err := topicIDs(ctx, s.client, names)
	if err != nil {
		return nil, fmt.Errorf("list topics again: %w", err)
	}
	var found []broker.SourcePartition
	for _, name := range names {
		if after[name] != broker.TopicID(topics[name].ID) {
			continue // created again meanwhile: the offsets may be those of either
		}
		for partition := range topics[name].Partitions {
			earliest, hasFirst := first.Lookup(name, partition)
			latest, hasEnd := end.Lookup(name, partition)
			if !hasFirst || !hasEnd || earliest.Err != nil || latest.Err != nil {
				continue
			}
			found = append(found, broker.SourcePartition{
				Topic: name, TopicID: broker.TopicID(topics[name].ID), Partition: partition,
				Earliest: earliest.Offset, Latest: latest.Offset,
			})
		}
	}
	slices.SortFunc(found, func(a, b broker.SourcePartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return found, nil
}

// isPartial tells whether some brokers answered and others did not.
func isPartial(err error) bool {
	failed, ok := errors.AsType[*kadm.ShardErrors](err)
	return ok && !failed.AllFailed
}

// topicIDs asks Kafka for the ids of the topics, past what the client remembers.
func topicIDs(ctx context.Context, client *kgo.Client, names []string) (map[string]broker.TopicID, error) {
	request := kmsg.NewPtrMetadataRequest()
	for i := range names {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &names[i]})
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]broker.TopicID, len(names))
	for _, t := range response.Topics {
		if t.Topic != nil && t.ErrorCode == 0 {
			ids[*t.Topic] = t.TopicID
		}
	}
	return ids, nil
}
