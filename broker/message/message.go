package message

import (
	"strconv"

	"github.com/carillonmq/carillon/storage"
)

// A Header is a record header. A nil Value is Kafka's null, which is not the
// empty value.
type Header struct {
	Key   string
	Value []byte
}

// Size returns about what the header takes in a record, in bytes: also an empty one.
func (h Header) Size() int { return 2 + len(h.Key) + len(h.Value) }

// An Origin is the record of a delay topic from which a message came. A message without a record, from
// storage.LevelFour on, has NoPartition and the seq of the first message that it was; where it is that
// one itself, 0 stands in its stored form.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
}

const (
	// NoPartition is the Partition of an Origin without a record.
	NoPartition = -1
	// OwnPrefix begins the name of an Origin without a record, and ids that a server makes. Nobody can
	// choose an id that begins so; client.OwnPrefix is the same.
	OwnPrefix = "api/"
)

// NoRecord reports whether there is no record.
func (o Origin) NoRecord() bool { return o.Partition == NoPartition }

// String returns topic/partition/offset, the id of a message whose producer chose
// none and the value of the header delivered-from; without a record api/seq.
func (o Origin) String() string { return string(o.append(nil)) }

func (o Origin) append(b []byte) []byte {
	if o.NoRecord() {
		return strconv.AppendInt(append(b, OwnPrefix...), o.Offset, 10)
	}
	b = append(append(b, o.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(o.Partition), 10), '/')
	return strconv.AppendInt(b, o.Offset, 10)
}

// originDigits is the most that stands behind the topic in an origin's text.
const originDigits = len("/-2147483648/-9223372036854775808")

// A Message is what waits: the body of a storage entry, decoded. Due time, target
// topic and sequence number are the entry's own.
type Message struct {
	ID          string // the caller's id; empty: Origin names the message
	Origin      Origin
	PlannedFor  int64 // asked-for delivery time, epoch milliseconds
	Expires     int64 // epoch milliseconds from which it is not delivered any more; 0: never
	Overdue     int64 // by how many milliseconds it was due already when it was accepted
	Partition   int32 // of the target; -1: the partitioner decides
	Partitioner Partitioner
	// DeadLetter: it goes to a dead-letter topic because something was wrong with it.
	DeadLetter bool
	// ValueDropped: it is a dead letter without the value, which was too large.
	ValueDropped bool
	// Key, Value and Headers are those of the record as it came, deliver-* headers
	// included: a message that cannot be delivered goes to the dead-letter topic so.
	Key, Value []byte
	Headers    []Header
}

// Name returns the caller's id or, if there is none, the origin: the value of the
// header delivered-id.
func (m *Message) Name() string { return string(m.appendName(nil)) }

func (m *Message) appendName(b []byte) []byte {
	if m.ID != "" {
		return append(b, m.ID...)
	}
	return m.Origin.append(b)
}

// Entry returns the message as it enters the schedule at the feature level: due then, in
// epoch milliseconds, for that topic. Below LevelThree nothing expires.
func (m *Message) Entry(due int64, target string, level storage.Level) storage.Entry {
	e := storage.Entry{Due: due, Target: target, Body: m.AppendBody(nil, level)}
	if level >= storage.LevelThree {
		e.Topic, e.ID, e.Expires = m.Origin.Topic, m.ID, m.Expires
	}
	return e
}
