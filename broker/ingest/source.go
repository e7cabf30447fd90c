package ingest

import (
	"context"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
)

// A Source reads delay topics. It is the adapter's side of ingest: broker/kafka
// implements it. One goroutine of the running term calls Poll, another one the rest.
//
// What Topics and Offsets return is the word of one Kafka broker each, which may have
// been frozen and answer from the past. The discovery judges it.
type Source interface {
	// Topics asks Kafka for the named topics, or for all that the routes match if names
	// is nil. A topic that Kafka does not tell of has an Err if it was named, and is not
	// among the answers otherwise. It blocks for a round trip, five seconds at most.
	// looked is how many topics Kafka told of, others than delay topics included: each
	// costs about 200 bytes, more with many partitions.
	Topics(ctx context.Context, names []string) (topics []SourceTopic, looked int, err error)
	// Offsets asks the leaders of the partitions. Answers are in the order of the
	// questions; it is an error only if no broker answers. It blocks for some round trips. A
	// leader has five seconds from one answer to the next, of which there are five at most.
	Offsets(ctx context.Context, questions []OffsetsQuestion) ([]OffsetsAnswer, error)
	// Assign replaces the set of partitions that Poll reads. A partition that was
	// already assigned under the same topic id and Round keeps its place in the fetch and
	// Position.Next is not looked at again; others start at Position.Next.
	Assign(positions []SourcePosition)
	// Poll blocks until records arrive or ctx ends. The batches of one partition
	// come in offset order and without gaps: the next From is the last Next.
	// A partition of which Kafka does not have the next offset, or has replaced records
	// before it, gives none until Kafka says otherwise or another Round is assigned.
	// Not calling Poll is what pauses the fetch; what is buffered is bounded.
	Poll(ctx context.Context) ([]Batch, error)
	// Failures returns the partitions that Poll cannot read at present. Any goroutine may
	// call it; it does not block.
	Failures() []SourceFailure
	// Close ends all reading and releases the connections. It does not block for
	// long and may be called while Poll is waiting.
	Close()
}

// A TopicID is Kafka's UUID of a topic, never zero. A topic that is deleted and created again
// has another one, and its offsets start anew.
type TopicID [16]byte

// A SourceTopic is a delay topic as a Kafka broker describes it.
type SourceTopic struct {
	Topic      string
	TopicID    TopicID
	Partitions []SourceLeader
	// Err is why there is no id: it wraps ErrSourceMissing, ErrSourceForbidden, or neither
	// when Kafka cannot tell for now.
	Err error
}

// A SourceLeader says which Kafka broker leads a partition: -1 when none does for now.
// The epoch counts up with each change of leader; -1 when unknown.
type SourceLeader struct {
	Partition, Leader, Epoch int32
}

// A SourceFailure is why a partition is not read. Err wraps ErrSourceForbidden if that is why.
type SourceFailure struct {
	TopicID   TopicID
	Partition int32
	Err       error
}

// An OffsetsQuestion asks the leader of one partition. A broker whose leader epoch is
// another one does not answer; -1 asks in any.
type OffsetsQuestion struct {
	Topic string
	// TopicID is the topic of which the offsets are certain to be: a broker that does not have it does not answer. Zero: they
	// are of whatever has the name for the broker, and so may be those of a topic that was deleted.
	TopicID TopicID
	SourceLeader
	// ReadEpoch is the leader epoch of the last record read, whose end is asked too; -1: not asked.
	ReadEpoch int32
}

// An OffsetsAnswer is what the leader says.
type OffsetsAnswer struct {
	Earliest int64 // first offset still there
	Latest   int64 // offset after the last record that a committed reader sees: the first one of a transaction that has not ended
	End      int64 // offset after the last record, not below Latest
	Epoch    int32 // leader epoch in which the broker said so, -1 when unknown
	ReadEnd  int64 // where records of ReadEpoch or before end; -1 when not asked or unknown
	Err      error // not nil: nothing was said, and why
}

// A SourcePosition says where reading of one partition goes on.
type SourcePosition struct {
	Topic     string
	TopicID   TopicID
	Partition int32
	Next      int64  // offset of the next record to ingest
	Epoch     int32  // leader epoch of the record before Next or of a later one, -1 when unknown
	Round     uint64 // tells one reading of the partition from the next, which begins at Next anew
}

// A Batch is a contiguous stretch of one source partition.
type Batch struct {
	Topic     string
	TopicID   TopicID
	Partition int32
	From      int64 // the stretch is From..Next-1; offsets without a record
	Next      int64 // (transaction markers, compaction) lie inside it
	Epoch     int32
	Round     uint64 // of the SourcePosition that it was read for
	Arrivals  []Arrival
}

func (b *Batch) id() partitionID { return partitionID{b.TopicID, b.Partition} }

// An Arrival is one record of a delay topic, its headers already read as the
// contract demands (client.Parse).
type Arrival struct {
	Offset      int64
	Time        int64 // of the record, as its topic has it, epoch milliseconds; 0 or less: not known
	Key, Value  []byte
	Headers     []message.Header // all of them, as they came
	Instruction Instruction
	Problem     *message.Problem // not nil: the record cannot be scheduled, and why
}

// size returns the bytes of key, value and headers.
func (a *Arrival) size() int {
	size := len(a.Key) + len(a.Value)
	for _, h := range a.Headers {
		size += h.Size()
	}
	return size
}

// An Instruction is what the deliver-* headers of a record ask for.
type Instruction struct {
	Cancel    bool   // the message of ID is to be cancelled; nothing is scheduled
	DueAt     int64  // epoch milliseconds, rounded up
	Expires   int64  // epoch milliseconds from which it is not delivered any more; 0: never
	To        string // target topic; empty: the route decides
	Partition int32  // -1: by partitioner
	ID        string // the caller's id; empty: the record's origin
	If        Condition
	Seq       uint64 // with raftfsm.Exactly
	Cluster   string // with raftfsm.Exactly: the id, in hexadecimal, of the cluster that Seq is of; empty: not named
}

// A Condition is what must be so for a record to take effect. Its numbers are those of package
// client, which a test holds equal.
type Condition = raftfsm.Condition
