package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/client"
)

func newKafka(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	kafka, err := kfake.NewCluster(append(options, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kafka.Close()
		goleak.VerifyNone(t)
	})
	return kafka
}

func newProducer(t *testing.T, kafka *kfake.Cluster) *client.Producer {
	t.Helper()
	producer, err := client.NewProducer(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	return producer
}

func consume(t *testing.T, kafka *kfake.Cluster, topic string, n int) (rs []*kgo.Record) {
	t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for len(rs) < n {
		fetches := consumer.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, fetches.Records()...)
	}
	return rs
}

func TestScheduleProducesTheStampedRecord(t *testing.T) {
	kafka := newKafka(t, kfake.SeedTopics(1, "orders.delay"))
	r := &client.Record{Topic: "orders.delay", Key: []byte("k"), Headers: []client.Header{{Key: "own"}, {Key: "own", Value: []byte{}}}}
	sent, err := newProducer(t, kafka).Schedule(t.Context(), r, client.After(time.Minute), client.ID("i"))
	if err != nil {
		t.Fatal(err)
	}
	got := consume(t, kafka, "orders.delay", 1)[0]
	if got.Offset != sent.Offset || string(got.Key) != "k" || got.Value != nil {
		t.Errorf("consumed offset %d, key %q, value %v", got.Offset, got.Key, got.Value)
	}
	want := []client.Header{{Key: "own"}, {Key: "own", Value: []byte{}}, {Key: "deliver-after", Value: []byte("1m0s")},
		{Key: "deliver-id", Value: []byte("i")}}
	if diff := cmp.Diff(want, got.Headers); diff != "" {
		t.Error(diff)
	}
	if len(r.Headers) != 2 {
		t.Error("Schedule changed the caller's record")
	}
}

func TestScheduleBatchReportsEachRecordInItsPlace(t *testing.T) {
	kafka := newKafka(t, kfake.SeedTopics(3, "orders.delay"))
	batch := []*client.Record{
		{Topic: "orders.delay", Value: []byte("0")},
		{Topic: "orders.delay", Value: []byte("1"), Headers: []client.Header{{Key: "deliver-to", Value: []byte("a b")}}},
		{Topic: "nowhere.delay", Value: []byte("2")},
		{Topic: "orders.delay", Value: []byte("3"), Headers: []client.Header{{Key: "deliver-to", Value: []byte("payments")}}},
	}
	results := newProducer(t, kafka).ScheduleBatch(t.Context(), batch, client.After(time.Minute))
	for i, want := range []error{nil, client.ErrMalformed, client.ErrTopicMissing, nil} {
		if got := results[i].Err; !errors.Is(got, want) {
			t.Errorf("record %d: error %v, want %v", i, got, want)
		}
		if string(results[i].Record.Value) != string(batch[i].Value) {
			t.Errorf("record %d: its result is that of %q", i, results[i].Record.Value)
		}
	}
	if got := len(consume(t, kafka, "orders.delay", 2)); got != 2 {
		t.Errorf("%d records in the delay topic, want 2", got)
	}
}

func TestScheduleAsyncCallsEachPromiseOnce(t *testing.T) {
	kafka := newKafka(t, kfake.SeedTopics(1, "orders.delay"))
	producer := newProducer(t, kafka)
	outcomes := make(chan error, 20)
	for range 10 {
		producer.ScheduleAsync(t.Context(), &client.Record{Topic: "orders.delay"},
			func(_ *client.Record, err error) { outcomes <- err }, client.After(time.Minute))
	}
	producer.ScheduleAsync(t.Context(), &client.Record{Topic: "orders.delay"}, nil, client.After(time.Minute))
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(consume(t, kafka, "orders.delay", 11)); got != 11 {
		t.Errorf("%d records, want 11", got)
	}
	if len(outcomes) != 10 {
		t.Errorf("%d outcomes, want 10", len(outcomes))
	}
	for range 10 {
		if err := <-outcomes; err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedRecordIsNeverSent(t *testing.T) {
	kafka := newKafka(t, kfake.SeedTopics(1, "orders.delay"))
	produces := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	_, err := newProducer(t, kafka).Schedule(t.Context(), &client.Record{Topic: "orders.delay"}, client.To("orders"))
	var wrong *client.HeaderError
	if !errors.As(err, &wrong) || wrong.Field != "deliver-at" {
		t.Errorf("error %v, want a *HeaderError for deliver-at", err)
	}
	if n := produces.Hits(); n != 0 {
		t.Errorf("%d produce requests", n)
	}
}

func TestProduceErrorsWrapTheirSentinel(t *testing.T) {
	for _, tt := range []struct {
		answer *kerr.Error
		want   error
	}{
		{kerr.TopicAuthorizationFailed, client.ErrForbidden},
		{kerr.MessageTooLarge, client.ErrTooLarge},
		{kerr.InvalidRecord, kerr.InvalidRecord},
	} {
		t.Run(tt.answer.Message, func(t *testing.T) {
			kafka := newKafka(t, kfake.SeedTopics(1, "orders.delay"))
			kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: tt.answer})
			_, err := newProducer(t, kafka).Schedule(t.Context(), &client.Record{Topic: "orders.delay"}, client.After(0))
			if !errors.Is(err, tt.want) || !errors.Is(err, tt.answer) || !strings.Contains(err.Error(), "orders.delay") {
				t.Errorf("error %v, want %v about orders.delay", err, tt.want)
			}
		})
	}
}

func TestClosedProducer(t *testing.T) {
	producer := newProducer(t, newKafka(t))
	producer.Close()
	_, err := producer.Schedule(context.Background(), &client.Record{Topic: "orders.delay"}, client.After(0))
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func TestBroughtClientStaysOpen(t *testing.T) {
	kafka := newKafka(t, kfake.SeedTopics(1, "orders.delay"))
	brought, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer brought.Close()
	client.NewProducerFrom(brought).Close()
	if err := brought.ProduceSync(t.Context(), &kgo.Record{Topic: "orders.delay"}).FirstErr(); err != nil {
		t.Errorf("the caller's client after Close of the producer: %v", err)
	}
}

func TestUnusableClientOptionsAreReported(t *testing.T) {
	if _, err := client.NewProducer(kgo.MetadataMinAge(time.Nanosecond)); err == nil {
		t.Error("a metadata refresh every nanosecond was accepted")
	}
}
