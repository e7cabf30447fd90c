package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A Producer schedules records. It stamps them, refuses what the broker would refuse, and produces
// them to their delay topics. All methods are safe for concurrent use.
type Producer struct {
	kafka *kgo.Client
	owned bool
}

// NewProducer returns a producer with a Kafka client of its own, which Close closes. The options
// are franz-go's, at least kgo.SeedBrokers. They win over the defaults set here: no linger, a failed
// partition waits 50 ms for fresh metadata, not 5 s, and records without a key are partitioned by
// their id ([PartitionByID]). It does not connect yet.
func NewProducer(options ...kgo.Opt) (*Producer, error) {
	defaults := []kgo.Opt{kgo.ProducerLinger(0), kgo.MetadataMinAge(50 * time.Millisecond), kgo.RecordPartitioner(PartitionByID())}
	kafka, err := kgo.NewClient(append(defaults, options...)...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &Producer{kafka: kafka, owned: true}, nil
}

// NewProducerFrom returns a producer on a client of the caller, who may go on to use it for
// anything else and closes it after the last use of the producer.
func NewProducerFrom(kafka *kgo.Client) *Producer {
	return &Producer{kafka: kafka}
}

// Schedule produces one record to its delay topic and waits for Kafka's answer, or for ctx. r is
// left as it is; the record returned is the one produced, with its partition and offset. Wrong
// options are a *[HeaderError] and send nothing; other errors wrap [ErrTopicMissing],
// [ErrForbidden], [ErrTooLarge], [ErrClosed], or Kafka's reason. After an error the record may
// still have been accepted.
func (p *Producer) Schedule(ctx context.Context, r *Record, options ...Option) (*Record, error) {
	results := p.ScheduleBatch(ctx, []*Record{r}, options...)
	return results[0].Record, results[0].Err
}

// ScheduleBatch is [Producer.Schedule] for many records at once. Records that differ in their time
// or target are stamped with [Stamp] before; the options here are added to all. Each record stands
// for itself: results[i] is the outcome of rs[i].
func (p *Producer) ScheduleBatch(ctx context.Context, rs []*Record, options ...Option) kgo.ProduceResults {
	results := make(kgo.ProduceResults, len(rs))
	var outstanding sync.WaitGroup
	outstanding.Add(len(rs))
	for i, r := range rs {
		p.ScheduleAsync(ctx, r, func(sent *Record, err error) {
			results[i] = kgo.ProduceResult{Record: sent, Err: err}
			outstanding.Done()
		}, options...)
	}
	outstanding.Wait()
	return results
}

// ScheduleAsync produces one record and returns at once, unless the client's buffer is full: then
// it waits for room, or for ctx. promise, which may be nil, is called exactly once with the record
// as it was sent and the error that Schedule would return. With wrong options it is called from
// here, else from a goroutine of the Kafka client, where it must not block. Records of one delay
// topic and key, or without a key of one id ([PartitionByID]), keep the order of the calls.
func (p *Producer) ScheduleAsync(ctx context.Context, r *Record, promise func(*Record, error), options ...Option) {
	if promise == nil {
		promise = func(*Record, error) {}
	}
	stamped := *r
	if err := Stamp(&stamped, options...); err != nil {
		promise(&stamped, fmt.Errorf("stamp record for %q: %w", r.Topic, err))
		return
	}
	p.kafka.Produce(ctx, &stamped, func(sent *Record, err error) {
		promise(sent, explain(sent.Topic, err))
	})
}

// Cancel asks for the message that waits under the id of the delay topic never to be delivered. It
// produces a record that says so, waits for Kafka's answer, or for ctx, and returns that record. That
// it was sent does not mean that the message was cancelled: it may be on its way already. What came
// of it `carillon explain` tells. key is that of the record that scheduled the message, nil if it had
// none, so that both are in one partition and this one comes after it. Errors are those of
// [Producer.Schedule]; [IfSeq] is the one option that has a meaning here. The cluster must be at
// feature level 3.
func (p *Producer) Cancel(ctx context.Context, topic string, key []byte, id string, options ...Option) (*Record, error) {
	return p.Schedule(ctx, &Record{Topic: topic, Key: key}, append([]Option{Cancel(id)}, options...)...)
}

// Flush waits until every record given to ScheduleAsync has its outcome, or until ctx ends.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.kafka.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Close closes the Kafka client that NewProducer made; records that have no outcome yet fail with
// [ErrClosed], so call Flush before. A client that the caller brought is left open.
func (p *Producer) Close() {
	if p.owned {
		p.kafka.Close()
	}
}

// explain wraps Kafka's error in the sentinel that it stands for, with what to do about it.
func explain(topic string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("produce to %q: %w, create it or check the name: %w", topic, ErrTopicMissing, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("produce to %q: %w, grant this user WRITE: %w", topic, ErrForbidden, err)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return fmt.Errorf("produce to %q: %w, raise max.message.bytes or send less: %w", topic, ErrTooLarge, err)
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("produce to %q: %w: %w", topic, ErrClosed, err)
	}
	return fmt.Errorf("produce to %q: %w", topic, err)
}

// PartitionByID returns the partitioner that a [Producer] has unless its options name another one: as
// Kafka's Java client does for records with a key, and for one without a key, but with an id, as if the
// id were the key. So whatever concerns one id is in one partition, and takes effect in the order in
// which it was produced, if all of it has the same key or all of it has none. Records without either go
// where the client's default puts them. Use it for a Kafka client of your own ([NewProducerFrom]).
func PartitionByID() kgo.Partitioner { return byID{} }

type byID struct{}

func (byID) ForTopic(topic string) kgo.TopicPartitioner {
	const untilSwitched = 64 << 10 // bytes, as kgo has it by default
	return &topicByID{
		keyed: kgo.StickyKeyPartitioner(nil).ForTopic(topic),
		free:  kgo.UniformBytesPartitioner(untilSwitched, true, false, nil).ForTopic(topic).(kgo.TopicBackupPartitioner),
	}
}

// A topicByID is used by one goroutine at a time.
type topicByID struct {
	keyed kgo.TopicPartitioner
	free  kgo.TopicBackupPartitioner
	probe kgo.Record // with nothing but a key
}

func (t *topicByID) RequiresConsistency(r *kgo.Record) bool { return partitionKey(r) != nil }

// Partition is for records with a key or an id; kgo asks PartitionByBackup for all.
func (t *topicByID) Partition(r *kgo.Record, n int) int {
	t.probe.Key = partitionKey(r)
	return t.keyed.Partition(&t.probe, n)
}

func (t *topicByID) PartitionByBackup(r *kgo.Record, n int, backup kgo.TopicBackupIter) int {
	if partitionKey(r) == nil {
		return t.free.PartitionByBackup(r, n, backup)
	}
	return t.Partition(r, n)
}

// partitionKey returns what the partition follows from; nil: nothing.
func partitionKey(r *kgo.Record) []byte {
	if r.Key != nil {
		return r.Key
	}
	for i := range r.Headers {
		if r.Headers[i].Key == HeaderID {
			return r.Headers[i].Value
		}
	}
	return nil
}
