package kafka

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

// What is delivered after a quiet time waits for no connection to be opened.
func TestConnectionsAreOpenAfterAQuietTime(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
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
		write := func() {
			t.Helper()
			if _, err := countOf(t.Context(), sink, "orders"); err != nil {
				t.Fatal(err)
			}
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 2 {
			write()
		}
		for _, quiet := range []time.Duration{time.Minute, 20 * time.Minute, time.Hour, 24 * time.Hour} {
			asked := requests.Hits()
			pass(quiet)
			t.Logf("%d requests in %v", requests.Hits()-asked, quiet)
			before := dials.Load()
			write()
			if n := dials.Load() - before; n != 0 {
				t.Errorf("after %v: %d connections were opened for one record", quiet, n)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}
