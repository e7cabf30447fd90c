package e2e

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// preload schedules n messages of 100 B for tomorrow and waits until all of them are pending.
func (c *carillonCluster) preload(k *kafkaCluster, n int) {
	c.t.Helper()
	producer := k.client()
	tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
	for number := range n {
		producer.Produce(context.Background(), &kgo.Record{
			Topic: delayTopic, Value: make([]byte, 100),
			Headers: []kgo.RecordHeader{{Key: client.HeaderAt, Value: strconv.AppendInt(nil, tomorrow+int64(number), 10)}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				c.t.Errorf("produce: %v", err)
			}
		})
	}
	if err := producer.Flush(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	c.awaitPending(3*patience, uint64(n))
}
