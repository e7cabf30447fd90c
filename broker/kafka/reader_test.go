package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// A reader polls a Source as ingest does and checks that its batches join without gaps.
type reader struct {
	*Source
	t    *testing.T
	next map[int32]int64
	// round of what discover assigns: each time anew, from where the reader is.
	round uint64
}

func newReader(t *testing.T, kafka bubble) *reader {
	t.Helper()
	return newReaderOf(t, kafka.config())
}

func newReaderOf(t *testing.T, c reach.Config) *reader {
	t.Helper()
	source, err := NewSource(c, func(topic string) bool { return strings.HasSuffix(topic, ".delay") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return &reader{Source: source, t: t, next: make(map[int32]int64)}
}

// A found partition and what its leader tells.
type found struct {
	ingest.SourceTopic
	ingest.SourceLeader
	ingest.OffsetsAnswer
}

// look asks for all topics and the offsets of their partitions; complete is false if something was not told.
func (r *reader) look() (all []found, complete bool) {
	r.t.Helper()
	topics, _, err := r.Topics(r.t.Context(), nil)
	if err != nil {
		r.t.Error(err)
	}
	complete = true
	var questions []ingest.OffsetsQuestion
	for _, topic := range topics {
		complete = complete && topic.Err == nil
		for _, leader := range topic.Partitions {
			questions = append(questions, ingest.OffsetsQuestion{Topic: topic.Topic, SourceLeader: leader, ReadEpoch: -1})
			all = append(all, found{SourceTopic: topic, SourceLeader: leader})
		}
	}
	answers, err := r.Offsets(r.t.Context(), questions)
	if err != nil {
		r.t.Error(err)
	}
	for i, answer := range answers {
		all[i].OffsetsAnswer = answer
	}
	told := slices.DeleteFunc(slices.Clone(all), func(f found) bool { return f.OffsetsAnswer.Err != nil })
	return told, complete && len(told) == len(all)
}

// discover assigns everything that is found, from its first offset on or from where the reader is.
func (r *reader) discover() []found {
	r.t.Helper()
	found, _ := r.look()
	r.round++
	var positions []ingest.SourcePosition
	for _, p := range found {
		if _, ok := r.next[p.Partition]; !ok {
			r.next[p.Partition] = p.Earliest
		}
		positions = append(positions, ingest.SourcePosition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition,
			Next: r.next[p.Partition], Epoch: -1, Round: r.round})
	}
	r.Assign(positions)
	return found
}

// read polls until n records came.
func (r *reader) read(n int) (arrivals []ingest.Arrival) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	for len(arrivals) < n {
		batches, err := r.Poll(ctx)
		if err != nil {
			r.t.Fatalf("poll after %d records of %d: %v", len(arrivals), n, err)
		}
		for _, b := range batches {
			if b.From != r.next[b.Partition] {
				r.t.Fatalf("partition %d: batch from %d, want from %d", b.Partition, b.From, r.next[b.Partition])
			}
			if b.Next <= b.From || b.Topic == "" || b.TopicID == (ingest.TopicID{}) {
				r.t.Fatalf("batch %+v", b)
			}
			r.next[b.Partition] = b.Next
			arrivals = append(arrivals, b.Arrivals...)
		}
	}
	return arrivals
}

// pollNothing polls for a while and fails the test if something comes.
func (r *reader) pollNothing() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	if batches, err := r.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		r.t.Errorf("Poll = %v, %v, want nothing", batches, err)
	}
}

func delayed(value string) *kgo.Record {
	return &kgo.Record{Topic: "orders.delay", Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "deliver-after", Value: []byte("5s")}}}
}

// discoverBeside is discover while another goroutine reads: the new partition starts at 0.
func (r *reader) discoverBeside(partition int32) {
	found, _ := r.look()
	var positions []ingest.SourcePosition
	for _, p := range found {
		if p.Partition <= partition {
			positions = append(positions, ingest.SourcePosition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Epoch: -1})
		}
	}
	r.Assign(positions)
}
