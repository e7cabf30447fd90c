package deliver

import (
	"context"
	"errors"

	"github.com/carillonmq/carillon/broker/message"
)

// A Sink writes records to target topics. broker/kafka implements it; the lanes
// of the publisher call it, each for its own topic, and the term for dead letters.
type Sink interface {
	// Partitions asks Kafka how many partitions each of the topics has, all in one
	// request, and returns the answers in the order of the topics. It keeps none: the
	// caller knows what it heard last, and when to doubt that. It blocks for a round
	// trip, or until ctx ends or Kafka has not answered for seconds; a client that does
	// not hear the context while it connects is left alone with its answer.
	Partitions(ctx context.Context, topics []string) []PartitionCount
	// Send hands one record to Kafka and returns at once. Records of one
	// (topic, partition) keep the order of the calls. When one of a Series has failed, all
	// of it that are sent later fail as well and are not tried. The slice of headers is the
	// caller's again when it returns, what it refers to is not. done is called exactly once,
	// from a goroutine of the sink, and must not block. Its error is nil when all
	// in-sync replicas have the record, and the receipt says where; else it wraps a
	// sentinel of this file, and the receipt says nothing.
	Send(d Delivery, done func(Receipt, error))
	// Isolate gives the topic's outstanding records up: their done is called with
	// ErrAbandoned, though Kafka may still write them. Until something of the topic
	// gets through it shares connections only with other topics that were isolated, and a
	// request with none if its Kafka broker answers others.
	Isolate(topic string)
	// CreateTopic creates a topic unless it exists, so that it takes batches of that
	// many bytes, or of Kafka's default if Kafka refuses as many. It blocks for a
	// round trip or two.
	CreateTopic(ctx context.Context, topic string, batchBytes int) error
	// Close gives everything outstanding up and releases the connections.
	Close()
}

// A PartitionCount is what Kafka says of a topic.
type PartitionCount struct {
	Count int32 // 1 or more, unless Err
	// Err wraps ErrTargetMissing, ErrTargetForbidden or ErrTargetUnavailable.
	Err error
}

// A Delivery is a record as it goes out to a target topic.
type Delivery struct {
	Topic     string
	Partition int32 // chosen by the caller, and not by the Kafka client
	Key       []byte
	Value     []byte
	Headers   []message.Header
	Series    *Series // nil: it does not matter to others whether this one fails
}

// A Series is the records that are sent to one topic until the sender has heard of a failure. A failure is known to the Sink
// first, and what the sender sends before it has heard of it would be written before what failed. So the failure is kept
// here, where Send finds it; the sender, when it has heard all, begins another.
type Series struct {
	Failed error // why one of its records failed, nil: none has. The Sink alone reads and writes it, under its lock
}

// A Receipt says where in its topic a record is.
type Receipt struct {
	Partition int32
	Offset    int64 // -1: Kafka has the record and did not say at which offset
}

// What a Sink's errors wrap.
var (
	// ErrTargetMissing is returned when Kafka does not know the topic.
	ErrTargetMissing = errors.New("target topic does not exist")
	// ErrTargetForbidden is returned when Kafka denies us the topic.
	ErrTargetForbidden = errors.New("target topic is forbidden")
	// ErrTargetUnavailable is returned for whatever can heal by itself: no leader,
	// too few replicas, no connection, no answer in time.
	ErrTargetUnavailable = errors.New("target topic is unavailable")
	// ErrRecordTooLarge is returned when the topic does not take a record of this size.
	ErrRecordTooLarge = errors.New("record is too large for the target topic")
	// ErrRecordRefused is returned when the topic refuses this very record for
	// another reason that trying again cannot change.
	ErrRecordRefused = errors.New("record is refused by the target topic")
	// ErrAbandoned is returned when the outcome is unknown because Isolate or Close
	// came first: the record may or may not be in the topic.
	ErrAbandoned = errors.New("send was abandoned, its outcome is unknown")
)
