package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

const (
	// A paused Source holds at most one fetch for each Kafka broker, which these bound as compressed by
	// the producer. A single batch that is larger is read nevertheless.
	fetchMaxBytes          = 1 << 20
	fetchMaxPartitionBytes = 256 << 10
	maxDecompressedBytes   = 64 << 20

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
	client  *kgo.Client
	hearing *reach.Hearing
	asking  *reach.Questions
	brokers []string // as configured, for errors
	matches func(topic string) bool
	log     *slog.Logger
	now     func() time.Time

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
	client, err := kgo.NewClient(append(options,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),       // a partition may end in a transaction marker: its offset is read too
		kgo.KeepRetryableFetchErrors(), // else they are tried again without a pause, and without a word
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(wait),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxPartitionBytes),
		kgo.MaxDecompressBatchBytes(maxDecompressedBytes),
	)...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &Source{
		client:   client,
		hearing:  hearing,
		asking:   reach.NewQuestions(client),
		brokers:  c.Kafka.Brokers,
		matches:  matches,
		log:      log,
		now:      time.Now,
		failed:   make(map[failedPartition]failedRead),
		assigned: make(map[string]*sourceTopic),
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
	return s.client.PollRecords(ctx, maxPollRecords)
}

// Close ends all reading; a Poll that waits returns. It may block for a second to end the fetch sessions.
func (s *Source) Close() {
	s.client.Close()
	s.hearing.Close()
}
