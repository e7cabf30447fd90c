package e2e

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// largestValue is about what a record may have that Kafka and its clients take at their
// defaults. Whatever headers are added, it fits such a topic no more.
const largestValue = 1_048_400

func TestDeadLetters_keepValuesAtTheLimit(t *testing.T) {
	t.Parallel()
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

	awaitDeadLetters(t, k.deadLetters(), want)
}

// A dead-letter topic that was there before is smaller than the delay topics. What it does not take
// waits, whoever leads, and what it takes goes there meanwhile.
func TestDeadLetters_waitForATopicThatTakesThem(t *testing.T) {
	t.Parallel()
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(1, delayTopic, deadLetterTopic)
	k.limit(deadLetterTopic, "10000")
	c := startCarillon(t, k.addrs(), t.TempDir(), t.TempDir(), t.TempDir())
	producer := k.client()
	value := map[string][]byte{"large": bytes.Repeat([]byte("l"), 500_000), "small": bytes.Repeat([]byte("s"), 5000)}
	for _, size := range []string{"large", "small"} {
		record := &kgo.Record{Topic: delayTopic, Value: value[size], Headers: []kgo.RecordHeader{{Key: client.HeaderAt, Value: []byte(size)}}}
		if err := producer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	letters := k.deadLetters()
	awaitDeadLetters(t, letters, map[string][]byte{"malformed": value["small"]})
	waits := func() bool {
		s, err := c.leader().status()
		return err == nil && s.Pending == 1 && strings.Contains(strings.Join(s.Problems, "; "), "dead letters wait, 1 of them")
	}
	await(t, patience, "the status says that a dead letter waits", waits)
	k.empty(delayTopic)
	c.kill()
	c.start()
	await(t, patience, "the status says so after all nodes were killed", waits)

	k.limit(deadLetterTopic, "1000000")
	awaitDeadLetters(t, letters, map[string][]byte{"malformed": value["large"]})
	await(t, patience, "the status has no problem", func() bool {
		s, err := c.leader().status()
		return err == nil && s.Pending == 0 && len(s.Problems) == 0
	})
}

const deadLetterTopic = "carillon.dead-letter"

// limit sets the topic's max.message.bytes.
func (k *kafkaCluster) limit(topic, bytes string) {
	k.t.Helper()
	change := []kadm.AlterConfig{{Name: "max.message.bytes", Value: &bytes}}
	answers, err := kadm.NewClient(k.client()).AlterTopicConfigs(k.t.Context(), change, topic)
	if err == nil {
		_, err = answers.On(topic, nil)
	}
	if err != nil {
		k.t.Fatalf("limit %s: %v", topic, err)
	}
}

// deadLetters returns a consumer of all dead letters.
func (k *kafkaCluster) deadLetters() *kgo.Client {
	return k.client(kgo.ConsumeTopics(deadLetterTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}

// awaitDeadLetters waits for the next dead letters, which must have the given values, by their codes.
func awaitDeadLetters(t *testing.T, consumer *kgo.Client, want map[string][]byte) {
	t.Helper()
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
