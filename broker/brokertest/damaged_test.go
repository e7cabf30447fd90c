package brokertest

import (
	"context"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/report"
)

// produceBatch writes a batch of one record to partition 0 that is right but for what is in it.
func (p *player) produceBatch(attributes int16, records []byte) {
	p.t.Helper()
	batch := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, Attributes: attributes, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: 1, Records: records}
	batch.Length = int32(len(batch.AppendTo(nil)) - 12) // behind offset and length
	batch.CRC = int32(crc32.Checksum(batch.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
	user, admin := p.user()
	defer user.Close()
	topics, err := admin.ListTopics(context.Background(), "orders.delay")
	p.must(err)
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = -1, 1000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = "orders.delay", topics["orders.delay"].ID
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = batch.AppendTo(nil)
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(context.Background(), user)
	p.must(err)
	if code := response.Topics[0].Partitions[0].ErrorCode; code != 0 {
		p.t.Fatalf("kfake refuses the batch: %d", code)
	}
}

// What cannot be read holds its partition up, visibly, and no other. It is passed over when it is deleted.
func TestDamagedBatch_holdsItsPartitionAlone(t *testing.T) {
	const gzip = 1
	for name, damage := range map[string]struct {
		do      func(c *Cluster, p *player) (mend func())
		problem string
	}{
		"by its producer": {func(_ *Cluster, p *player) func() {
			p.produceBatch(gzip, []byte("not compressed"))
			return func() {}
		}, "unable to decompress batch: gzip"},
		"on Kafka's disk": {func(c *Cluster, p *player) func() {
			p.produceBatch(0, []byte{100, 0})
			fault := c.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders.delay", Partitions: []int32{0}, Err: kerr.CorruptMessage, Count: -1})
			return fault.Remove
		}, "CORRUPT_MESSAGE"},
	} {
		t.Run(name, func(t *testing.T) {
			inOneTerm(t, func(c *Cluster, p *player) {
				p.produceHourly(21)
				p.pass(time.Second) // all of it is read before anything is damaged
				mend := damage.do(c, p)
				p.produceHourly(1) // the next one is for the other partition
				p.pass(time.Minute)
				p.expectTaken(42, 21, 21)
				p.expectProblems("source: not read: orders.delay/0 (failing: " + damage.problem)
				p.expectReading(report.StateFailing, 1, 1)

				mend()
				c.kafka.DeleteRecords("orders.delay", 0, 22)
				p.pass(20 * time.Second)
				p.expectTaken(42, 22, 21)
				p.produceHourly(2)
				p.pass(3 * time.Second)
				p.expectTaken(44, 23, 22)
				p.expectReading(report.StateRead, 2, 0)
				if lost := c.leader().metric("carillon_source_lost_records_total"); lost != 1 {
					t.Errorf("%v records are counted as lost, want 1", lost)
				}
			})
		})
	}
}
