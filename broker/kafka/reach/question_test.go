package reach

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// When all Kafka brokers have new addresses, only the configured ones lead to them.
func TestQuestionsFindAKafkaThatHasMoved(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		moved, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9093), kfake.ListenFn(kafka.Network.Listen), kfake.SeedTopics(3, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Close()
		now := kafka.ListenAddrs()[0]
		config := configOf(t, kafka)
		config.Kafka.Brokers = []string{"kafka:9092"}
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "kafka:9092" {
				address = now
			}
			return kafka.Network.DialContext(ctx, network, address)
		}
		questions, end := ask(t, config)
		defer end()
		orders := "orders"
		count := func() (int, error) {
			answer, err := askInTime(t, questions, func() kmsg.Request {
				request := kmsg.NewPtrMetadataRequest()
				request.Topics = []kmsg.MetadataRequestTopic{{Topic: &orders}}
				return request
			})
			if err != nil {
				return 0, err
			}
			return len(answer.(*kmsg.MetadataResponse).Topics[0].Partitions), nil
		}
		for range 3 {
			if _, err := count(); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		now = moved.ListenAddrs()[0]
		kafka.Close()
		start := time.Now()
		for {
			n, err := count()
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
