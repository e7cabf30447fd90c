package brokertest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A topic that is shortened has lost its newest records, and tells so at once; all else is as it was.
func TestShorten_losesTheNewestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=1", "kafka=files"}))
		defer c.stop()
		p := newPlayer(c, NewReport())
		topic := func(name string, count int) {
			c.must(p.createTopic(name, arguments{}))
			for range count {
				c.must(p.produce(name, parseArguments([]string{"deliver-after=1h"})))
			}
		}
		topic("orders.delay", 10)
		topic("bills.delay", 5)
		topic("trimmed.delay", 4)
		c.must(p.trimTopic("trimmed.delay", arguments{}))
		by := func(count string) arguments { return parseArguments([]string{"by=" + count}) }
		expect := func(when string, topic string, from, end int64, epoch int32) {
			t.Helper()
			if is := c.kafka.PartitionInfo(topic, 0); is.LogStartOffset != from || is.HighWatermark != end || is.Epoch != epoch {
				t.Errorf("%s %s has %d to %d in epoch %d, want %d to %d in epoch %d", when, topic, is.LogStartOffset, is.HighWatermark, is.Epoch, from, end, epoch)
			}
		}
		ended := func(when string, epoch int32, want int64) {
			t.Helper()
			user, _ := c.user()
			defer user.Close()
			q := kmsg.NewPtrOffsetForLeaderEpochRequest()
			asked := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			asked.LeaderEpoch = epoch
			q.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders.delay", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{asked}}}
			answer, err := q.RequestWith(context.Background(), user)
			c.must(err)
			if got := answer.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.EndOffset != want {
				t.Errorf("%s epoch %d is told to end at %d (error %d), want %d", when, epoch, got.EndOffset, got.ErrorCode, want)
			}
		}

		c.must(p.shorten("orders.delay", by("3")))
		expect("then", "orders.delay", 0, 7, 1)
		expect("then", "bills.delay", 0, 5, 0)
		expect("then", "trimmed.delay", 4, 4, 0)
		ended("before anything is written", 0, 7)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=2", "deliver-after=1h"})))
		expect("after two more", "orders.delay", 0, 9, 1)
		ended("after two more", 0, 7)
		ended("after two more", 1, 9)
		c.must(p.shorten("orders.delay", by("100")))
		expect("once all is lost", "orders.delay", 0, 0, 2)
		expect("once all is lost", "trimmed.delay", 4, 4, 0)
		ended("once all is lost", 1, 0)

		lost := 0
		for _, r := range p.produced {
			if r.lost {
				lost++
			}
			if r.gone != (r.lost || r.topicID == c.kafka.TopicInfo("trimmed.delay").TopicID) {
				t.Errorf("%s is gone: %t, lost: %t, and nobody has read it", r.origin, r.gone, r.lost)
			}
		}
		if lost != 12 {
			t.Errorf("%d records are noted as lost, want 12", lost)
		}
	})
}
