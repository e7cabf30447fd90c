package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker"
)

const (
	// partitionsMaxAge bounds how long partitions that are added to a target go unused.
	partitionsMaxAge = 5 * time.Second
	// partitionsTimeout bounds the wait for Kafka's answer.
	partitionsTimeout = 2 * time.Second
)

// Partitions returns how many partitions the topic has; see [broker.Sink].
func (s *Sink) Partitions(ctx context.Context, topic string) (int32, error) {
	s.mu.Lock()
	t := s.target(topic)
	known, fresh := t.partitions, s.now().Sub(t.partitionsAt) < partitionsMaxAge
	doubtful := t.refusedSize || known == 0 // known is 0 after any failure
	s.mu.Unlock()
	if known > 0 && fresh {
		return known, nil
	}

	client, giveBack, err := s.borrow()
	if err != nil {
		return 0, classify(topic, err)
	}
	defer giveBack()
	ctx, cancel := context.WithTimeout(ctx, partitionsTimeout)
	defer cancel()
	n, err := countPartitions(ctx, client, topic)
	if err != nil {
		return 0, classify(topic, err)
	}
	changed := s.limits.ask(ctx, client, topic, doubtful)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.partitions, t.partitionsAt = n, s.now()
	t.stale = t.stale || changed
	s.leaveStale(t)
	return n, nil
}

func countPartitions(ctx context.Context, client *kgo.Client, topic string) (int32, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	if len(response.Topics) != 1 {
		return 0, fmt.Errorf("metadata of %d topics: %w", len(response.Topics), broker.ErrTargetUnavailable)
	}
	if err := kerr.ErrorForCode(response.Topics[0].ErrorCode); err != nil {
		return 0, err
	}
	return int32(len(response.Topics[0].Partitions)), nil
}
