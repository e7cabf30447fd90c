package kafkatest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// producer returns a client that sends each record in a request of its own, without waiting for the answer to that before.
func producer(t *testing.T, kafka kafkatest.Bubble) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.Dialer(kafka.Network.DialContext),
		kgo.DefaultProduceTopic("orders"), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// end returns how many records Kafka has.
func end(kafka kafkatest.Bubble) int64 { return kafka.PartitionInfo("orders", 0).HighWatermark }

// Kafka takes up one request of a connection after the other, and none before hold has let it go.
func TestGate_holdsOneAfterAnother(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		client := producer(t, kafka)
		defer client.Close()
		if err := client.ProduceSync(t.Context(), new(kgo.Record)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		kafka.Gate.Hold(func(request kafkatest.Request) {
			if _, writes := request.Request.(*kmsg.ProduceRequest); writes {
				time.Sleep(time.Second)
			}
		})
		for range 4 {
			client.Produce(t.Context(), new(kgo.Record), nil)
			synctest.Wait() // a request each
		}
		for want := int64(1); want <= 5; want++ {
			if n := end(kafka); n != want {
				t.Errorf("%d records, want %d", n, want)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		kafka.Gate.Hold(nil)
		start := time.Now()
		if err := client.ProduceSync(t.Context(), new(kgo.Record)).FirstErr(); err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	}, kfake.SeedTopics(1, "orders"))
}

// What waits when its client goes is carried out; what waits behind it is not, as when its answer cannot be written.
func TestGate_letsInWhatWasSent(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		client := producer(t, kafka)
		if err := client.ProduceSync(t.Context(), new(kgo.Record)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		kafka.Gate.Hold(func(kafkatest.Request) { <-release })
		for range 3 {
			client.Produce(t.Context(), new(kgo.Record), nil)
			synctest.Wait()
		}
		client.Close()
		synctest.Wait()
		close(release)
		synctest.Wait()
		if n := end(kafka); n != 2 {
			t.Errorf("%d records, want that of before and the first that waited", n)
		}
	}, kfake.SeedTopics(1, "orders"))
}

// Kafka ends while requests wait at many connections, and leaves nothing behind when they need not wait any more.
func TestGate_letsKafkaEnd(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		release := make(chan struct{})
		for range 8 {
			client := producer(t, kafka)
			defer client.Close()
			if err := client.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		kafka.Gate.Hold(func(request kafkatest.Request) {
			if request.Broker != 0 {
				t.Errorf("a request to broker %d of one", request.Broker)
			}
			<-release
		})
		for range 8 {
			client := producer(t, kafka)
			defer client.Close()
			client.Produce(t.Context(), new(kgo.Record), nil)
		}
		synctest.Wait()
		kafka.Close()
		close(release)
	}, kfake.SeedTopics(1, "orders"))
}
