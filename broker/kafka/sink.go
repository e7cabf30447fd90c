package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker"
)

const (
	// recordTimeout is when a record that Kafka has not taken fails, if it is certain that Kafka has not.
	recordTimeout = 2 * time.Second
	// unknownTopicRetries: a topic that was just created may be unknown to some brokers.
	unknownTopicRetries = 4
	// maxBufferedRecords is no bound of ours: the publisher has its own, which is lower.
	maxBufferedRecords = 1 << 20
)

var _ broker.Sink = (*Sink)(nil)

// A Sink writes target topics: idempotent, acknowledged by all in-sync replicas, at once. All methods are
// safe for concurrent use.
//
// franz-go does not give up a record that was sent and not answered, and holds back what follows it in
// that partition. So a topic that is stuck is isolated: it leaves the shared connection for one of its own,
// and joins the shared one again when something got through and nothing is outstanding.
type Sink struct {
	options []kgo.Opt
	limits  *limits
	log     *slog.Logger

	background sync.WaitGroup // calls of done, and closing, which may block for a while

	mu      sync.Mutex // guards all below, targets' fields too
	closed  bool
	shared  *connection
	targets map[string]*target
}

// NewSink returns a Sink. It does not connect yet.
func NewSink(c Config) (*Sink, error) {
	options, err := c.Options()
	if err != nil {
		return nil, err
	}
	limits := newLimits()
	options = append(options,
		kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(recordTimeout),
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(unknownTopicRetries),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.ProducerBatchMaxBytesFn(limits.batchBytes),
	)
	shared, err := connect(options)
	if err != nil {
		return nil, err
	}
	return &Sink{
		options: options,
		limits:  limits,
		log:     c.Logger.With("component", "sink"),
		shared:  shared,
		targets: make(map[string]*target),
	}, nil
}

// Send hands one record to Kafka and returns at once; see [broker.Sink].
func (s *Sink) Send(d broker.Delivery, done func(error)) {
	issued := &send{done: done}
	issued.record = kgo.Record{
		Topic:     d.Topic,
		Partition: d.Partition,
		Key:       d.Key,
		Value:     d.Value,
		Headers:   kafkaHeaders(d.Headers),
	}
	client, err := s.issue(issued)
	if err != nil {
		go done(err)
		return
	}
	client.TryProduce(context.Background(), &issued.record, func(_ *kgo.Record, err error) {
		s.settle(issued, err)
	})
}

// issue notes the send as outstanding and returns the client to produce it with.
func (s *Sink) issue(issued *send) (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, abandoned(issued.record.Topic)
	}
	t := s.target(issued.record.Topic)
	if len(t.outstanding) == 0 && t.isolated && t.healthy {
		s.leave(t)
		t.isolated = false
	}
	if t.connection == nil {
		if err := s.join(t); err != nil {
			return nil, fmt.Errorf("send to %q: %w: %w", t.topic, broker.ErrTargetUnavailable, err)
		}
	}
	t.outstanding[issued] = struct{}{}
	return t.connection.client, nil
}

// settle resolves the send with Kafka's outcome, unless it was abandoned before.
func (s *Sink) settle(issued *send, err error) {
	s.mu.Lock()
	t := s.target(issued.record.Topic)
	_, ours := t.outstanding[issued]
	delete(t.outstanding, issued)
	if ours {
		t.learn(err)
		s.leaveStale(t)
	}
	s.mu.Unlock()
	if ours {
		issued.done(classify(t.topic, err))
	}
}

// Isolate gives the topic's outstanding records up; see [broker.Sink].
func (s *Sink) Isolate(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	t := s.target(topic)
	s.log.Warn("target topic is isolated: it gets a Kafka client of its own", "topic", topic, "abandoned", len(t.outstanding))
	s.abandon(t)
	s.leave(t)
	t.isolated, t.healthy = true, false // what got through before proves nothing of the next connection
}

// abandon resolves everything outstanding of the target. The caller holds mu.
func (s *Sink) abandon(t *target) {
	given := t.outstanding
	t.outstanding = make(map[*send]struct{})
	s.background.Go(func() {
		for issued := range given {
			issued.done(abandoned(t.topic))
		}
	})
}

func abandoned(topic string) error {
	return fmt.Errorf("send to %q: %w", topic, broker.ErrAbandoned)
}

// Close gives everything outstanding up and releases the connections. It blocks until that is done.
func (s *Sink) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for _, t := range s.targets {
			s.abandon(t)
			s.leave(t)
		}
		s.background.Go(s.shared.client.Close)
	}
	s.mu.Unlock()
	s.background.Wait()
}

func kafkaHeaders(headers []broker.Header) []kgo.RecordHeader {
	converted := make([]kgo.RecordHeader, len(headers))
	for i, h := range headers {
		converted[i] = kgo.RecordHeader(h)
	}
	return converted
}
