package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
)

// accept turns fetches into batches. Partitions with an error stall.
//
// One poll may bring both the news that records were replaced, and records from behind that place, in
// either order. So all such news is heard before any record is taken.
func (s *Source) accept(fetches kgo.Fetches) []ingest.Batch {
	fetches.EachError(func(topic string, partition int32, err error) {
		p := s.find(topic, ingest.TopicID{}, partition)
		if _, replaced := errors.AsType[*kgo.ErrDataLoss](err); replaced && p != nil && !p.stalled() {
			s.fail(topic, partition, p, fmt.Errorf("%w: %w", errReplaced, err))
		}
	})
	var batches []ingest.Batch
	for _, fetch := range fetches {
		for i := range fetch.Topics {
			topic := &fetch.Topics[i]
			for j := range topic.Partitions {
				fetched := &topic.Partitions[j]
				p := s.find(topic.Topic, topic.TopicID, fetched.Partition)
				if p == nil || p.stalled() {
					continue
				}
				batch, err := p.take(fetched.Records)
				if err != nil {
					s.fail(topic.Topic, fetched.Partition, p, err)
					continue
				}
				if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](fetched.Err); ok && large.NextOffset > p.next {
					s.skip(p, &batch, large)
				} else if fetched.Err != nil {
					s.fail(topic.Topic, fetched.Partition, p, fetched.Err)
				}
				if batch.Next > batch.From {
					p.fresh = false
					s.recover(p, failedPartition{s.assigned[topic.Topic].id, fetched.Partition})
					batch.Topic, batch.TopicID, batch.Partition = topic.Topic, s.assigned[topic.Topic].id, fetched.Partition
					batch.Round = p.round
					batches = append(batches, batch)
				}
			}
		}
	}
	return batches
}

// recover forgets the failure of a partition that was read.
func (s *Source) recover(p *sourcePartition, at failedPartition) {
	if p.failure == nil || p.stalled() {
		return
	}
	p.failure, p.failures = nil, 0
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, at)
}

// take returns the batch from p.next on, empty when there is nothing in it. Control records (transaction
// markers) and offsets without a record only move the position.
//
// The client gives no record from before the offset that it was told, unless it has gone back by itself.
func (p *sourcePartition) take(records []*kgo.Record) (ingest.Batch, error) {
	batch := ingest.Batch{From: p.next}
	if len(records) > 0 && records[0].Offset < p.next {
		return batch, fmt.Errorf("offset %d came after %d: %w", records[0].Offset, p.next-1, errReplaced)
	}
	for _, r := range records {
		p.next, p.epoch = r.Offset+1, r.LeaderEpoch
		if !r.Attrs.IsControl() {
			batch.Arrivals = append(batch.Arrivals, arrival(r))
		}
	}
	batch.Next, batch.Epoch = p.next, p.epoch
	return batch, nil
}

func arrival(r *kgo.Record) ingest.Arrival {
	a := ingest.Arrival{
		Offset:  r.Offset,
		Key:     r.Key,
		Value:   r.Value,
		Headers: brokerHeaders(r.Headers),
	}
	in, err := client.Parse(r.Headers, r.Timestamp.UnixMilli())
	if err != nil {
		a.Problem = problem(err)
		return a
	}
	a.Instruction = ingest.Instruction{DueAt: in.DueAt, To: in.To, Partition: in.Partition, ID: in.ID}
	return a
}

func problem(err error) *message.Problem {
	p := &message.Problem{Code: message.CodeMalformed, Message: err.Error()}
	if wrong, ok := errors.AsType[*client.HeaderError](err); ok {
		p.Code = string(wrong.Code)
	}
	return p
}

func brokerHeaders(headers []client.Header) []message.Header {
	if len(headers) == 0 {
		return nil
	}
	converted := make([]message.Header, len(headers))
	for i, h := range headers {
		converted[i] = message.Header(h)
	}
	return converted
}
