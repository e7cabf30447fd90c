package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
)

const (
	// A paused Source holds at most one fetch for each Kafka broker, which these bound as compressed by
	// the producer, and its unpacker without that. A single batch that is larger is read nevertheless.
	fetchMaxBytes          = 1 << 20
	fetchMaxPartitionBytes = 256 << 10

	defaultFetchMaxWait = 2 * time.Second

	// maxPollRecords bounds what one Poll returns.
	maxPollRecords = 8192
)

var _ ingest.Source = (*Source)(nil)

// A Source reads delay topics: partitions assigned directly, committed records only. Poll is for one
// goroutine; all else may be called beside it.
//
// What is fetched belongs to the goroutine of Poll alone. Assign leaves the wanted set for it and wakes it.
type Source struct {
	client    *kgo.Client
	unpacker  *unpacker        // of client
	hearing   *reach.Hearing   // of both clients
	asking    *kgo.Client      // for all that is not fetched: no answer waits behind a fetch that waits for records
	questions *reach.Questions // put with asking
	brokers   []string         // as configured, for errors
	matches   func(topic string) bool
	log       *slog.Logger
	now       func() time.Time

	mu     sync.Mutex // guards what Assign hands to Poll, and Poll to Failures
	wanted []ingest.SourcePosition
	fresh  bool                           // wanted was not applied yet
	failed map[failedPartition]failedRead // what cannot be read, as far as it was not tried again since
	wake   context.CancelFunc             // interrupts the running poll; nil when none runs

	assigned map[string]*sourceTopic // by name; only Poll's goroutine
	joinAt   time.Time               // when partitions that were added are to be fetched; likewise
}

// NewSource returns a Source of the topics that match. It does not connect yet.
func NewSource(c reach.Config, matches func(topic string) bool) (*Source, error) {
	log := c.Logger.With("component", "source")
	options, hearing, err := c.Heard(log)
	if err != nil {
		return nil, err
	}
	wait := c.FetchMaxWait
	if wait == 0 {
		wait = defaultFetchMaxWait
	}
	unpacker, err := newUnpacker()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(options,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),       // a partition may end in a transaction marker: its offset is read too
		kgo.KeepRetryableFetchErrors(), // else they are tried again without a pause, and without a word
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(wait),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxPartitionBytes),
		kgo.WithDecompressor(unpacker),
		kgo.WithHooks(unpacker),
	)...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	asking, err := kgo.NewClient(options...)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &Source{
		client:    client,
		unpacker:  unpacker,
		hearing:   hearing,
		asking:    asking,
		questions: reach.NewQuestions(asking, c.Cluster),
		brokers:   c.Kafka.Brokers,
		matches:   matches,
		log:       log,
		now:       time.Now,
		failed:    make(map[failedPartition]failedRead),
		assigned:  make(map[string]*sourceTopic),
	}, nil
}

// Assign replaces the set of partitions that Poll reads. It takes effect with the running or the next
// Poll and does not block.
func (s *Source) Assign(positions []ingest.SourcePosition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted, s.fresh = positions, true
	if s.wake != nil {
		s.wake()
	}
}

// Poll blocks until records arrive, or until ctx or the Source ends, whose error it returns. What Kafka
// answers for single partitions is no error: it is logged, and the partition tried again.
func (s *Source) Poll(ctx context.Context) ([]ingest.Batch, error) {
	for {
		fetches := s.poll(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if fetches.IsClientClosed() {
			return nil, errClosed
		}
		batches := s.accept(fetches)
		s.retryStalled()
		s.join()
		if len(batches) > 0 {
			return batches, nil
		}
	}
}

// poll applies the wanted assignment, then waits for a fetch, a new assignment, or until a stalled
// partition is to be looked at.
func (s *Source) poll(ctx context.Context) kgo.Fetches {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s.mu.Lock()
	wanted, fresh := s.wanted, s.fresh
	s.fresh, s.wake = false, cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.wake = nil
		s.mu.Unlock()
	}()

	if fresh {
		s.apply(wanted)
	}
	if at, ok := s.nextRetry(); ok {
		timed, cancel := context.WithDeadline(ctx, at)
		defer cancel()
		ctx = timed
	}
	fetches := s.client.PollRecords(ctx, maxPollRecords)
	s.unpacker.polled(s.client)
	return fetches
}

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
				p := s.find(topic.Topic, ingest.TopicID{}, fetched.Partition)
				if p == nil || p.stalled() {
					continue
				}
				if s.find(topic.Topic, topic.TopicID, fetched.Partition) == nil {
					// The topic was created anew, and the client has found out before the discovery did.
					// It would ask for the old offset again and again.
					s.fail(topic.Topic, fetched.Partition, p, kerr.UnknownTopicID)
					continue
				}
				batch, err := p.take(fetched.Records)
				if err != nil {
					s.fail(topic.Topic, fetched.Partition, p, err)
					continue
				}
				if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](fetched.Err); ok && large.NextOffset > p.next {
					s.skip(p, &batch, large)
				} else if fetched.Err != nil && !errors.Is(fetched.Err, errEnoughUnpacked) {
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
	headers := 0
	for _, r := range records {
		headers += len(r.Headers)
	}
	batch.Arrivals = make([]ingest.Arrival, 0, len(records))
	room := make([]message.Header, 0, headers) // of all
	for _, r := range records {
		p.next, p.epoch = r.Offset+1, r.LeaderEpoch
		if !r.Attrs.IsControl() {
			at := len(room)
			room = appendHeaders(room, r.Headers)
			batch.Arrivals = append(batch.Arrivals, arrival(r, room[at:len(room):len(room)]))
		}
	}
	batch.Next, batch.Epoch = p.next, p.epoch
	return batch, nil
}

func arrival(r *kgo.Record, headers []message.Header) ingest.Arrival {
	a := ingest.Arrival{
		Offset:  r.Offset,
		Time:    r.Timestamp.UnixMilli(),
		Key:     r.Key,
		Value:   r.Value,
		Headers: headers,
	}
	in, err := client.Parse(r.Headers, r.Timestamp.UnixMilli())
	if err != nil {
		a.Problem = problem(err)
		return a
	}
	a.Instruction = ingest.Instruction{
		Cancel: in.Verb == client.VerbCancel, DueAt: in.DueAt, Expires: in.Expires, To: in.To, Partition: in.Partition, ID: in.ID,
		If: ingest.Condition(in.If), Seq: in.Seq, Cluster: in.Cluster,
	}
	return a
}

func problem(err error) *message.Problem {
	p := &message.Problem{Code: message.CodeMalformed, Message: err.Error()}
	if wrong, ok := errors.AsType[*client.HeaderError](err); ok {
		p.Code = string(wrong.Code)
	}
	return p
}

func messageHeaders(headers []client.Header) []message.Header { return appendHeaders(nil, headers) }

func appendHeaders(converted []message.Header, headers []client.Header) []message.Header {
	for _, h := range headers {
		converted = append(converted, message.Header(h))
	}
	return converted
}

// Close ends all reading; a Poll that waits returns. It may block for a second to end the fetch sessions.
func (s *Source) Close() {
	s.client.Close()
	s.asking.Close()
	s.hearing.Close()
}
