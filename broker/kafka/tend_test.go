package kafka

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

// What is delivered first in a term, and after a quiet time, waits for no connection to be opened, whichever Kafka broker leads
// its partition and whichever are asked about it.
func TestConnectionsAreOpenBeforeTheyAreNeeded(t *testing.T) {
	const brokers = 3
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		for i, name := range names {
			if err := kafka.MoveTopicPartition(name, 0, int32(i%brokers)); err != nil {
				t.Fatal(err)
			}
		}
		var dials atomic.Int64
		config := kafka.config()
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return kafka.Network.DialContext(ctx, network, address)
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		requests := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata, kmsg.DescribeConfigs, kmsg.ApiVersions}, Count: -1, Observe: true})
		pass(time.Second)
		t.Logf("%d connections are opened at the begin", dials.Load())
		for _, quiet := range []time.Duration{0, time.Minute, 20 * time.Minute, time.Hour, 24 * time.Hour} {
			asked, before := requests.Hits(), dials.Load()
			pass(quiet)
			t.Logf("%d requests and %d connections in %v", requests.Hits()-asked, dials.Load()-before, quiet)
			before = dials.Load()
			for _, name := range append(names[:9:9], names[9:18]...) { // known ones, and new ones
				if _, err := countOf(t.Context(), sink, name); err != nil {
					t.Fatal(err)
				}
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: name}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if n := dials.Load() - before; n != 0 {
				t.Errorf("after %v: %d connections were opened for records", quiet, n)
			}
			names = names[9:]
		}
	}, kfake.NumBrokers(brokers), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, names...))
}
