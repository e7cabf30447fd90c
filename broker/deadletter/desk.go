package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/replayed"
)

// A Kafka is what dead letters are read from. Its methods block until Kafka has answered, or ctx ends.
type Kafka interface {
	// Partitions returns those of the topics, each with the offsets of its first record and of the one to
	// come. A topic that does not exist has none. With since above 0, First is that of the first record
	// which was written then or later, epoch milliseconds.
	Partitions(ctx context.Context, topics []string, since int64) ([]Partition, error)
	// Read returns what committed records there are in each of the spans, which are of different
	// partitions. Once it has read more than so many bytes it leaves off: of one span at least it has
	// read something then.
	Read(ctx context.Context, spans []Span, bytes int) ([]Stretch, error)
}

// A Partition is one of a dead-letter topic.
type Partition struct {
	Topic       string
	TopicID     [16]byte
	Number      int32
	First, Next int64 // offsets of the first record, and of the one to come
}

func (p *Partition) marks() replayed.Partition {
	return replayed.Partition{TopicID: p.TopicID, Number: p.Number}
}

// A Span is offsets of a partition, From and up to, not including, To.
type Span struct {
	Partition *Partition
	From, To  int64
}

// A Stretch is what was read of a span.
type Stretch struct {
	Records []Record // in order of their offsets
	Whole   bool     // there are no others in the span
}

// A Store is the schedule of this node.
type Store interface {
	State() storage.State
	Replayed(at replayed.Partition, offset int64) bool
}

// Options are the parts that a Desk is made of. All are required.
type Options struct {
	Kafka  Kafka
	Store  Store
	Topics []string // that dead letters go to
	// TargetOf returns where messages of a delay topic go that name no target.
	TargetOf func(delayTopic string) string
	Now      func() time.Time
}

// A Desk tells of dead letters. Its methods may be called from any goroutine; they block for Kafka and
// for others' answers, and ctx bounds that. Whether one was replayed is told as far as this node has
// applied the log.
type Desk struct {
	kafka    Kafka
	store    Store
	topics   []string
	targetOf func(string) string
	now      func() time.Time
	turns    *semaphore.Weighted
}

const (
	// atOnce bounds how many answers are worked on at a time: each has up to mostRead bytes in memory,
	// and what Kafka sends ahead.
	atOnce = 2
	// patience bounds the work for one answer, with the wait for its turn.
	patience = 10 * time.Second
)

// New returns a Desk. It asks nothing before it is asked.
func New(o Options) *Desk {
	return &Desk{kafka: o.Kafka, store: o.Store, topics: o.Topics, targetOf: o.TargetOf, now: o.Now, turns: semaphore.NewWeighted(atOnce)}
}

// enter returns once it is the caller's turn, with the context of its work; leave must follow.
func (d *Desk) enter(ctx context.Context) (work context.Context, leave func(), err error) {
	work, cancel := context.WithTimeout(ctx, patience)
	err = d.turns.Acquire(work, 1)
	if err == nil && work.Err() != nil { // a turn that comes at the end of the wait is of no use
		d.turns.Release(1)
		err = work.Err()
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("wait for others' answers: %w", context.Cause(ctx))
		}
		return nil, nil, fmt.Errorf("wait for others' answers: %w: they took more than %v: ask again", ErrKafka, patience)
	}
	return work, func() { cancel(); d.turns.Release(1) }, nil
}

// inTime wraps what Kafka says, and what it does not say in time.
func inTime(ctx context.Context, what string, err error) error {
	if errors.Is(err, ErrKafka) {
		return err
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: it took more than %v: ask again, for less of it", what, ErrKafka, patience)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrKafka, err)
}

// A Place is where a record lies.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns topic/partition/offset.
func (p Place) String() string { return fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset) }

// Get returns the record at the place, with its payload. Its errors are ErrTopic, ErrGone and ErrKafka.
func (d *Desk) Get(ctx context.Context, at Place) (client.DeadLetter, error) {
	p, r, err := d.read(ctx, at)
	if err != nil {
		return client.DeadLetter{}, err
	}
	told := tell(&p, &r, d.targetOf)
	told.Payload, told.Replayed = payload(&r), d.store.Replayed(p.marks(), r.Offset)
	return told, nil
}

// read returns the record at the place, and its partition as it is now.
func (d *Desk) read(ctx context.Context, at Place) (p Partition, r Record, err error) {
	if !slices.Contains(d.topics, at.Topic) {
		return p, r, fmt.Errorf("%w: %q: the configuration names %s", ErrTopic, at.Topic, strings.Join(d.topics, ", "))
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return p, r, err
	}
	defer leave()
	partitions, err := d.kafka.Partitions(ctx, []string{at.Topic}, 0)
	if err != nil {
		return p, r, inTime(ctx, "look for "+at.String(), err)
	}
	i := slices.IndexFunc(partitions, func(p Partition) bool { return p.Number == at.Partition })
	switch {
	case len(partitions) == 0:
		return p, r, fmt.Errorf("%w: topic %q does not exist", ErrGone, at.Topic)
	case i < 0:
		return p, r, fmt.Errorf("%w: %q has %d partitions, and none of number %d", ErrGone, at.Topic, len(partitions), at.Partition)
	}
	p = partitions[i]
	switch {
	case at.Offset < p.First:
		return p, r, fmt.Errorf("%w: the records of %s/%d before offset %d are gone, by the retention of the topic", ErrGone, p.Topic, p.Number, p.First)
	case at.Offset >= p.Next:
		return p, r, fmt.Errorf("%w: the last record of %s/%d is before offset %d", ErrGone, p.Topic, p.Number, p.Next)
	}
	stretches, err := d.kafka.Read(ctx, []Span{{&p, at.Offset, at.Offset + 1}}, 0)
	if err != nil {
		return p, r, inTime(ctx, "read "+at.String(), err)
	}
	if len(stretches[0].Records) == 0 {
		return p, r, fmt.Errorf("%w: offset %d of %s/%d has no record: it was compacted away, or of a transaction", ErrGone, at.Offset, p.Topic, p.Number)
	}
	return p, stretches[0].Records[0], nil
}
