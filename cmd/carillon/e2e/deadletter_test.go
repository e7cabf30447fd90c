package e2e

import (
	"bytes"
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// largestValue is about what a record may have that Kafka and its clients take at their
// defaults. Whatever headers are added, it fits such a topic no more.
const largestValue = 1_048_400

func TestDeadLetters_keepValuesAtTheLimit(t *testing.T) {
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(1, delayTopic, targetTopic)
	startCarillon(t, k.addrs(), t.TempDir())
	producer := k.client(kgo.ProducerBatchMaxBytes(1_048_588), kgo.ProducerBatchCompression(kgo.NoCompression()))
	want := make(map[string][]byte) // value by code of the dead letter
	for code, after := range map[string]string{"too-large": "1", "malformed": "soon"} {
		want[code] = bytes.Repeat([]byte{code[0]}, largestValue)
		record := &kgo.Record{Topic: delayTopic, Value: want[code], Headers: []kgo.RecordHeader{{Key: client.HeaderAfter, Value: []byte(after)}}}
		if err := producer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	consumer := k.client(kgo.ConsumeTopics("carillon.dead-letter"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(want) > 0 {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d dead letters did not come", len(want))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			code := header(r, client.HeaderErrorCode)
			if value := want[code]; value == nil || !bytes.Equal(value, r.Value) {
				t.Errorf("dead letter %q: %d bytes, want the %d of the record", code, len(r.Value), len(value))
			}
			delete(want, code)
		})
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
