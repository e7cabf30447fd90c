package kafka

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// When all Kafka brokers have new addresses, only the configured ones lead to them.
func TestQuestionsFindAKafkaThatHasMoved(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		moved, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9093), kfake.ListenFn(kafka.network.Listen), kfake.SeedTopics(3, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Close()
		now := kafka.ListenAddrs()[0]
		config := kafka.config()
		config.Kafka.Brokers = []string{"kafka:9092"}
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "kafka:9092" {
				address = now
			}
			return kafka.network.DialContext(ctx, network, address)
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		for range 3 {
			if _, err := countOf(t.Context(), sink, "orders"); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		now = moved.ListenAddrs()[0]
		kafka.Close()
		start := time.Now()
		for {
			n, err := countOf(t.Context(), sink, "orders")
			if err == nil && n == 3 {
				break
			}
			if time.Since(start) > 10*time.Minute {
				t.Fatalf("not found: %v", err)
			}
			pass(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("found after %v", took)
		}
	}, kfake.SeedTopics(1, "orders"))
}
