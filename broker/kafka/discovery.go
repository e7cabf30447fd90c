package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

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
	var found []broker.SourcePartition
	for _, name := range names {
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
