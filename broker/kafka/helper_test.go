package kafka

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// A bubble is a Kafka in virtual time.
type bubble struct {
	kafkatest.Bubble
	t *testing.T
}

// inBubble runs test with a Kafka of one broker, unless options say otherwise. A goroutine that is left behind fails it.
func inBubble(t *testing.T, test func(t *testing.T, kafka bubble), options ...kfake.Opt) {
	t.Helper()
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) { test(t, bubble{kafka, t}) }, options...)
}

func (b bubble) config() reach.Config {
	return reach.Config{
		Kafka:  config.Kafka{Brokers: b.ListenAddrs()},
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		Dial:   b.Network.DialContext,
	}
}

// client returns a Kafka client of the test's own.
func (b bubble) client(options ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(b.ListenAddrs()...), kgo.Dialer(b.Network.DialContext),
		kgo.MetadataMinAge(10*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(client.Close)
	return client
}

func (b bubble) admin() *kadm.Client { return kadm.NewClient(b.client()) }

func (b bubble) produce(rs ...*kgo.Record) {
	b.t.Helper()
	client := b.client()
	defer client.Close()
	if err := client.ProduceSync(b.t.Context(), rs...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// records reads the topic's n first records, all partitions.
func (b bubble) records(topic string, n int) (rs []*kgo.Record) {
	b.t.Helper()
	client := b.client(kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	for len(rs) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			b.t.Fatalf("%d records of %s, want %d", len(rs), topic, n)
		}
		rs = append(rs, fetches.Records()...)
	}
	return rs
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// countOf asks the sink for the partitions of one topic.
func countOf(ctx context.Context, sink *Sink, topic string) (int32, error) {
	answer := sink.Partitions(ctx, []string{topic})[0]
	return answer.Count, answer.Err
}
