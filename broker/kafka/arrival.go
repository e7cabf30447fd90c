package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

// accept turns fetches into batches. Partitions with an error stall.
func (s *Source) accept(fetches kgo.Fetches) []broker.Batch {
	var batches []broker.Batch
	for _, fetch := range fetches {
		for i := range fetch.Topics {
			topic := &fetch.Topics[i]
			for j := range topic.Partitions {
				fetched := &topic.Partitions[j]
				p := s.find(topic.Topic, topic.TopicID, fetched.Partition)
				if p == nil || p.stalled() {
					continue
				}
				batch := p.take(fetched.Records)
				if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](fetched.Err); ok && large.NextOffset > p.next {
					s.skip(p, &batch, large)
				} else if fetched.Err != nil {
					s.fail(topic.Topic, fetched.Partition, p, fetched.Err)
				}
				if batch.Next > batch.From {
					batch.Topic, batch.TopicID, batch.Partition = topic.Topic, s.assigned[topic.Topic].id, fetched.Partition
					batches = append(batches, batch)
				}
			}
		}
	}
	return batches
}

// take returns the batch from p.next on, empty when there is nothing in it. Control records (transaction
// markers) and offsets without a record only move the position.
func (p *sourcePartition) take(records []*kgo.Record) broker.Batch {
	batch := broker.Batch{From: p.next}
	if len(records) > 0 {
		p.failure = nil
	}
	for _, r := range records {
		if r.Offset < p.next {
			continue
		}
		p.next, p.epoch = r.Offset+1, r.LeaderEpoch
		if !r.Attrs.IsControl() {
			batch.Arrivals = append(batch.Arrivals, arrival(r))
		}
	}
	batch.Next, batch.Epoch = p.next, p.epoch
	return batch
}

func arrival(r *kgo.Record) broker.Arrival {
	a := broker.Arrival{
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
	a.Instruction = broker.Instruction{DueAt: in.DueAt, To: in.To, Partition: in.Partition, ID: in.ID}
	return a
}

func problem(err error) *broker.Problem {
	p := &broker.Problem{Code: broker.CodeMalformed, Message: err.Error()}
	if wrong, ok := errors.AsType[*client.HeaderError](err); ok {
		p.Code = string(wrong.Code)
	}
	return p
}

func brokerHeaders(headers []client.Header) []broker.Header {
	if len(headers) == 0 {
		return nil
	}
	converted := make([]broker.Header, len(headers))
	for i, h := range headers {
		converted[i] = broker.Header(h)
	}
	return converted
}
