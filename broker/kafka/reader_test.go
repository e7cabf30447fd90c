package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker"
)

// A reader polls a Source as ingest does and checks that its batches join without gaps.
type reader struct {
	*Source
	t    *testing.T
	next map[int32]int64
}

func newReader(t *testing.T, kafka bubble) *reader {
	t.Helper()
	source, err := NewSource(kafka.config(), func(topic string) bool { return strings.HasSuffix(topic, ".delay") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return &reader{Source: source, t: t, next: make(map[int32]int64)}
}

// discover assigns everything that Discover finds, from its first offset on or from where the reader is.
func (r *reader) discover() []broker.SourcePartition {
	r.t.Helper()
	found, _, err := r.Discover(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var positions []broker.SourcePosition
	for _, p := range found {
		if _, ok := r.next[p.Partition]; !ok {
			r.next[p.Partition] = p.Earliest
		}
		positions = append(positions, broker.SourcePosition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition,
			Next: r.next[p.Partition], Epoch: -1})
	}
	r.Assign(positions)
	return found
}

// read polls until n records came.
func (r *reader) read(n int) (arrivals []broker.Arrival) {
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
			if b.Next <= b.From || b.Topic == "" || b.TopicID == (broker.TopicID{}) {
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
	found, _, err := r.Discover(r.t.Context())
	if err != nil {
		r.t.Error(err)
	}
	var positions []broker.SourcePosition
	for _, p := range found {
		if p.Partition <= partition {
			positions = append(positions, broker.SourcePosition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Epoch: -1})
		}
	}
	r.Assign(positions)
}
