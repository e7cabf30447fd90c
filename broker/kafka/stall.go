package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/message"
)

// A partition that fails is tried again after minStall, and after twice as long each time that it fails again. The
// client itself would repeat it without a pause: out of range, it answers 17,000 times in a second. Each failure costs
// a connection to each Kafka broker, since the running fetches end. The shortest stall is what a move of its leader costs.
const (
	minStall = 100 * time.Millisecond
	maxStall = 10 * time.Second
)

// fail stops fetching the partition for a while. After an unclean election (kgo.ErrDataLoss) or out of range the
// client has no say in where reading goes on: it would skip records or read some again, on the word of one Kafka
// broker. The partition waits until the discovery has moved its position, or it turns out that nothing was lost.
func (s *Source) fail(topic string, partition int32, p *sourcePartition, err error) {
	if p.failure == nil || p.failure.Error() != err.Error() {
		s.log.Warn("cannot read a partition of a delay topic, trying on", "topic", topic, "partition", partition,
			"offset", p.next, "error", err)
	}
	p.failure = err
	p.retryAt = s.now().Add(min(minStall<<min(p.failures, 10), maxStall))
	p.failures++
	s.client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[failedPartition{s.assigned[topic].id, partition}] = failedRead{sourceError(err), p.retryAt.Add(failureShown)}
}

// failureShown is how long after a stall, when the partition is fetched again, the failure still counts: it takes
// some time to show again. A partition that is fetched without a word from Kafka is all right, or empty.
const failureShown = 3 * time.Second

type failedPartition struct {
	id        ingest.TopicID
	partition int32
}

type failedRead struct {
	err   error
	until time.Time
}

// Failures returns the partitions that cannot be read at present.
func (s *Source) Failures() (failures []ingest.SourceFailure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for p, f := range s.failed {
		if f.until.Before(now) {
			delete(s.failed, p)
			continue
		}
		failures = append(failures, ingest.SourceFailure{TopicID: p.id, Partition: p.partition, Err: f.err})
	}
	return failures
}

// skip moves past records that were sent as one batch and take more memory than a batch may. Nothing is
// known of them but their offsets: the dead letter of the first one says so for all.
func (s *Source) skip(p *sourcePartition, batch *ingest.Batch, large *kgo.ErrDecompressTooLarge) {
	problem := &message.Problem{Code: message.CodeTooLarge, Message: fmt.Sprintf(
		"records of offset %d to %d were sent as one batch of more than %d bytes, uncompressed, or more than %d with what each record and header takes in memory, and are not read: send smaller batches",
		p.next, large.NextOffset-1, mostUnpacked, mostBatch)}
	s.log.Error("a batch in a delay topic is too large to be read and becomes one dead letter",
		"topic", large.Topic, "partition", large.Partition, "reason", problem.Message)
	batch.Arrivals = append(batch.Arrivals, ingest.Arrival{Offset: p.next, Problem: problem})
	p.next, p.epoch = large.NextOffset, large.Epoch
	batch.Next, batch.Epoch = p.next, p.epoch
	s.client.RemoveConsumePartitions(map[string][]int32{large.Topic: {large.Partition}})
	s.resume(large.Topic, large.Partition, p)
}

// nextRetry returns when the first stalled partition is to be looked at, or one that was added is to join.
func (s *Source) nextRetry() (at time.Time, ok bool) {
	at, ok = s.joinAt, !s.joinAt.IsZero()
	for _, topic := range s.assigned {
		for _, p := range topic.partitions {
			if p.stalled() && (!ok || p.retryAt.Before(at)) {
				at, ok = p.retryAt, true
			}
		}
	}
	return at, ok
}

// retryStalled fetches stalled partitions again whose time has come. One whose offset Kafka does not have
// stalls again, until the broker moves the position.
func (s *Source) retryStalled() {
	now := s.now()
	for name, topic := range s.assigned {
		for partition, p := range topic.partitions {
			if !p.stalled() || p.retryAt.After(now) {
				continue
			}
			if errors.Is(p.failure, kerr.UnknownTopicID) {
				s.restart(name, topic)
				break
			}
			s.resume(name, partition, p)
		}
	}
}

func (s *Source) resume(topic string, partition int32, p *sourcePartition) {
	p.retryAt, p.fresh = time.Time{}, true
	add := make(map[string]map[int32]kgo.Offset)
	addOffset(add, topic, partition, p)
	s.add(add)
}

// restart makes the client forget the topic and the id it knew it by, and read it again.
func (s *Source) restart(name string, topic *sourceTopic) {
	s.client.PurgeTopicsFromConsuming(name)
	add := make(map[string]map[int32]kgo.Offset)
	for partition, p := range topic.partitions {
		p.retryAt, p.fresh = time.Time{}, true
		addOffset(add, name, partition, p)
	}
	s.add(add)
}
