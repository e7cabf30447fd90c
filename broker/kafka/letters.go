package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

const (
	// maxPollLetters bounds what is looked at between two looks at the bounds of a reading.
	maxPollLetters = 256
	// lettersMaxWait is how long Kafka may wait for records that are there already.
	lettersMaxWait = 100 * time.Millisecond
)

var _ deadletter.Kafka = (*Letters)(nil)

// Letters reads dead-letter topics when it is asked. All methods are safe for concurrent use. Each has
// clients of its own, which end with it: questions are rare, and a client that waits for them would ask
// Kafka for its metadata all the time.
type Letters struct{ config reach.Config }

// NewLetters returns Letters. It does not connect yet.
func NewLetters(c reach.Config) (*Letters, error) {
	c.Logger = c.Logger.With("component", "letters")
	if _, err := c.Options(); err != nil {
		return nil, err
	}
	return &Letters{c}, nil
}

// client returns a client with options of its own: kgo writes into those of compression, and several ask at once.
func (l *Letters) client(more ...kgo.Opt) (*kgo.Client, error) {
	options, err := l.config.Options()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return client, nil
}

// Partitions asks Kafka for those of the topics; see [deadletter.Kafka].
func (l *Letters) Partitions(ctx context.Context, topics []string, since int64) (all []deadletter.Partition, err error) {
	asking, err := l.client()
	if err != nil {
		return nil, err
	}
	defer asking.Close()
	admin := kadm.NewClient(asking)
	told, err := admin.Metadata(ctx, topics...)
	if err != nil {
		return nil, reach.WithRemedy("look for topics", err)
	}
	var there []string
	for _, topic := range told.Topics.Sorted() {
		if errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if topic.Err != nil {
			return nil, fmt.Errorf("look for topic %q: %w: allow Describe and Read on it", topic.Topic, topic.Err)
		}
		if topic.ID == (kadm.TopicID{}) { // what is marked as replayed, and where a page goes on, counts by it
			return nil, fmt.Errorf("look for topic %q: %w", topic.Topic, errNoTopicID)
		}
		there = append(there, topic.Topic)
	}
	if len(there) == 0 {
		return nil, nil
	}
	var first kadm.ListedOffsets
	if since > 0 {
		first, err = admin.ListOffsetsAfterMilli(ctx, since, there...)
	} else {
		first, err = admin.ListStartOffsets(ctx, there...)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for first offsets: %w", err)
	}
	next, err := admin.ListCommittedOffsets(ctx, there...)
	if err != nil {
		return nil, fmt.Errorf("ask for last offsets: %w", err)
	}
	for _, topic := range there {
		for _, p := range told.Topics[topic].Partitions.Sorted() {
			from, _ := first.Lookup(topic, p.Partition)
			to, found := next.Lookup(topic, p.Partition)
			if err := errors.Join(from.Err, to.Err); err != nil || !found {
				return nil, fmt.Errorf("ask for the offsets of %s/%d: %w", topic, p.Partition, err)
			}
			all = append(all, deadletter.Partition{
				Topic: topic, TopicID: told.Topics[topic].ID, Number: p.Partition,
				First: min(from.Offset, to.Offset), Next: to.Offset,
			})
		}
	}
	return all, nil
}

// Read reads the spans with a client of its own; see [deadletter.Kafka].
func (l *Letters) Read(ctx context.Context, spans []deadletter.Span, bytes int) ([]deadletter.Stretch, error) {
	r := reading{spans: spans, stretches: make([]deadletter.Stretch, len(spans))}
	at := map[string]map[int32]kgo.Offset{}
	for _, s := range spans {
		p := s.Partition
		if at[p.Topic] == nil {
			at[p.Topic] = map[int32]kgo.Offset{}
		}
		at[p.Topic][p.Number] = kgo.NewOffset().At(s.From)
	}
	unpacker, err := newUnpacker()
	if err != nil {
		return nil, err
	}
	client, err := l.client(
		kgo.ConsumePartitions(at),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last offsets of a span may be of transaction markers
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(lettersMaxWait),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxPartitionBytes),
		kgo.WithDecompressor(unpacker),
		kgo.WithHooks(unpacker),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for !r.done(bytes) {
		fetches := client.PollRecords(ctx, maxPollLetters)
		unpacker.polled(client)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.take(fetches); err != nil {
			return nil, err
		}
	}
	return r.stretches, nil
}

// A reading is what was read of some spans.
type reading struct {
	spans     []deadletter.Span
	stretches []deadletter.Stretch
	bytes     int
}

// done reports whether all was read, or more than enough and something at least.
func (r *reading) done(enough int) bool {
	for i := range r.stretches {
		if !r.stretches[i].Whole {
			return enough > 0 && r.bytes > enough
		}
	}
	return true
}

func (r *reading) take(fetches kgo.Fetches) (err error) {
	for _, fetch := range fetches {
		for _, topic := range fetch.Topics {
			for _, p := range topic.Partitions {
				i := slices.IndexFunc(r.spans, func(s deadletter.Span) bool {
					return s.Partition.Topic == topic.Topic && s.Partition.Number == p.Partition
				})
				if i < 0 {
					continue // an error of the client's as a whole
				}
				if topic.TopicID != ([16]byte{}) && topic.TopicID != r.spans[i].Partition.TopicID {
					return fmt.Errorf("topic %q was created anew meanwhile", topic.Topic)
				}
				for _, record := range p.Records {
					r.add(i, record)
				}
				if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](p.Err); ok { // there is no reading it
					r.reach(i, large.NextOffset)
				} else if p.Err != nil && !errors.Is(p.Err, errEnoughUnpacked) && !r.stretches[i].Whole {
					err = errors.Join(err, fmt.Errorf("%s/%d: %w", topic.Topic, p.Partition, p.Err))
				}
			}
		}
	}
	return err
}

func (r *reading) add(i int, record *kgo.Record) {
	if record.Offset < r.spans[i].To && !record.Attrs.IsControl() {
		letter := deadletter.Record{Offset: record.Offset, Time: record.Timestamp.UnixMilli(), Key: record.Key, Value: record.Value, Headers: messageHeaders(record.Headers)}
		r.stretches[i].Records = append(r.stretches[i].Records, letter)
		r.bytes += letter.Size()
	}
	r.reach(i, record.Offset+1)
}

// reach notes that there is nothing before the offset that was not read.
func (r *reading) reach(i int, next int64) {
	if next >= r.spans[i].To {
		r.stretches[i].Whole = true
	}
}
