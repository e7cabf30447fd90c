package broker

import "context"

// A Source reads delay topics. It is the adapter's side of ingest: broker/kafka
// implements it, and one goroutine, the ingest of the running term, calls it.
type Source interface {
	// Discover lists every partition of every topic that the routes match; complete
	// is false if Kafka cannot tell of some for now and they are left out. It asks
	// Kafka, so it blocks for a round trip; it is called about once a second.
	Discover(ctx context.Context) (found []SourcePartition, complete bool, err error)
	// Assign replaces the set of partitions that Poll reads. A partition that was
	// already assigned under the same topic id keeps its place in the fetch and
	// Position.Next is not looked at again; a new one starts at Position.Next.
	Assign(positions []SourcePosition)
	// Poll blocks until records arrive or ctx ends. The batches of one partition
	// come in offset order and without gaps: the next From is the last Next.
	// A partition whose next offset Kafka does not have gives none, until it has it or
	// another position is assigned.
	// Not calling Poll is what pauses the fetch; what is buffered is bounded.
	Poll(ctx context.Context) ([]Batch, error)
	// Close ends all reading and releases the connections. It does not block for
	// long and may be called while Poll is waiting.
	Close()
}

// A TopicID is Kafka's UUID of a topic, never zero. A topic that is deleted and created again
// has another one, and its offsets start anew.
type TopicID [16]byte

// A SourcePartition is a partition of a delay topic as Kafka describes it.
type SourcePartition struct {
	Topic     string
	TopicID   TopicID
	Partition int32
	Earliest  int64 // first offset still there
	Latest    int64 // offset after the last record that a committed reader sees
}

// A SourcePosition says where reading of one partition goes on.
type SourcePosition struct {
	Topic     string
	TopicID   TopicID
	Partition int32
	Next      int64 // offset of the next record to ingest
	Epoch     int32 // leader epoch of the record before Next, -1 when unknown
}

// A Batch is a contiguous stretch of one source partition.
type Batch struct {
	Topic     string
	TopicID   TopicID
	Partition int32
	From      int64 // the stretch is From..Next-1; offsets without a record
	Next      int64 // (transaction markers, compaction) lie inside it
	Epoch     int32
	Arrivals  []Arrival
}

// An Arrival is one record of a delay topic, its headers already read as the
// contract demands (client.Parse).
type Arrival struct {
	Offset      int64
	Key, Value  []byte
	Headers     []Header // all of them, as they came
	Instruction Instruction
	Problem     *Problem // not nil: the record cannot be scheduled, and why
}

// An Instruction is what the deliver-* headers of a record ask for.
type Instruction struct {
	DueAt     int64  // epoch milliseconds, rounded up
	To        string // target topic; empty: the route decides
	Partition int32  // -1: by partitioner
	ID        string // the caller's id; empty: the record's origin
}

// A Problem says why a message goes to the dead-letter topic instead of its target.
type Problem struct {
	Code    string // one of the Problem codes
	Message string // names the field, the value and the remedy
}

// The codes of a Problem, as they stand in the header __carillon.errors.code.
const (
	CodeMalformed      = "malformed"        // a deliver-* header cannot be read
	CodeUnsupported    = "unsupported"      // a deliver-* header that is not served yet
	CodeTargetDenied   = "target-denied"    // the configuration does not allow the target
	CodeTargetInvalid  = "target-invalid"   // not a topic name, or no such partition
	CodeTargetMissing  = "target-missing"   // the topic did not appear in time
	CodeTargetForbids  = "target-forbidden" // Kafka refuses us the target
	CodeBeyondMaxDelay = "beyond-max-delay" // due later than the route allows
	CodeTooLarge       = "too-large"        // the target, or the schedule, does not take a record of this size
	CodeRefused        = "refused"          // the target refuses this record for another reason
)
