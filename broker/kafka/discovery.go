package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker"
)

// discoverTimeout bounds one look at Kafka.
const discoverTimeout = 5 * time.Second

// Discover lists every partition of every topic that matches, sorted by topic and partition. One that
// Kafka cannot tell the offsets of, because it has no leader for now, is left out, and so is a topic with
// an error: then the answer is not complete.
func (s *Source) Discover(ctx context.Context) (found []broker.SourcePartition, complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	topics, err := s.admin.ListTopics(ctx)
	if err != nil {
		return nil, false, cannotAsk("list topics", err)
	}
	names := slices.DeleteFunc(topics.Names(), func(name string) bool { return !s.matches(name) })
	all := len(names)
	names = slices.DeleteFunc(names, func(name string) bool { return topics[name].Err != nil })
	complete = len(names) == all
	if len(names) == 0 {
		return nil, complete, nil // no names would list the offsets of every topic
	}
	for _, name := range names {
		if topics[name].ID == (kadm.TopicID{}) {
			return nil, false, fmt.Errorf("kafka.brokers %s: topic %q: %w", strings.Join(s.brokers, ","), name, errNoTopicID)
		}
	}
	first, err := s.admin.ListStartOffsets(ctx, names...)
	if err != nil && !isPartial(err) {
		return nil, false, cannotAsk("list first offsets", err)
	}
	end, err := s.admin.ListCommittedOffsets(ctx, names...)
	if err != nil && !isPartial(err) {
		return nil, false, cannotAsk("list last committed offsets", err)
	}
	after, err := topicIDs(ctx, s.client, names)
	if err != nil {
		return nil, false, cannotAsk("list topics again", err)
	}
	for _, name := range names {
		if after[name] != broker.TopicID(topics[name].ID) {
			complete = false // created again meanwhile: the offsets may be those of either
			continue
		}
		for partition := range topics[name].Partitions {
			earliest, hasFirst := first.Lookup(name, partition)
			latest, hasEnd := end.Lookup(name, partition)
			if !hasFirst || !hasEnd || earliest.Err != nil || latest.Err != nil {
				complete = false
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
	return found, complete, nil
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
