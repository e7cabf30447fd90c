package deadletter

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/replayed"
)

// A fullKafka has partitions of large records without an end, and leaves off reading after so many bytes as it is told.
type fullKafka struct {
	partitions, size int
	held             uint64 // the most that was in memory when something was to be read, in bytes
}

func (k *fullKafka) Partitions(context.Context, []string, int64) (all []Partition, err error) {
	for i := range k.partitions {
		all = append(all, Partition{Topic: "dead", TopicID: [16]byte{1}, Number: int32(i), Next: 1000})
	}
	return all, nil
}

func (k *fullKafka) Read(_ context.Context, spans []Span, bytes int) ([]Stretch, error) {
	k.held = max(k.held, heap())
	stretches := make([]Stretch, len(spans))
	for i, span := range spans {
		s := &stretches[i]
		for at := span.From; at < span.To && bytes >= 0; at++ {
			s.Records = append(s.Records, Record{Offset: at, Time: at, Value: make([]byte, k.size)})
			bytes -= k.size
		}
		s.Whole = len(s.Records) == int(span.To-span.From)
	}
	return stretches, nil
}

// heap returns what is in use of the heap, in bytes.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

type nothingReplayed struct{}

func (nothingReplayed) State() storage.State                    { return storage.State{} }
func (nothingReplayed) Replayed(replayed.Partition, int64) bool { return false }

// None can be told before the newest of each partition is known, and there may be hundreds of these with records of 16 MiB.
func TestList_holdsNoPayloads(t *testing.T) {
	k := &fullKafka{partitions: 200, size: 1 << 20}
	desk := New(Options{Kafka: k, Store: nothingReplayed{}, Topics: []string{"dead"}, TargetOf: func(topic string) string { return topic }, Now: time.Now})
	before := heap()
	page, err := desk.List(t.Context(), ListRequest{Filter: client.Filter{}, Limit: 10})
	if err != nil || len(page.DeadLetters) == 0 {
		t.Fatalf("%d listed, error %v, want some", len(page.DeadLetters), err)
	}
	if held := k.held - min(before, k.held); held > mostAtOnce {
		t.Errorf("%d MB are held between two readings, want %d at most", held>>20, mostAtOnce>>20)
	}
}
