package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// What was read is delivered though Kafka has lost it, and what comes in its place is taken in, once.
func TestKafkaLosesRecords_losesNothingThatWasRead(t *testing.T) {
	const each = 2000
	k, c, l := newStage(t, 1, dirs(t, 3)...)
	producer := k.client()
	for number := range each {
		l.schedule(producer, delayTopic, number, time.Now().Add(15*time.Second))
		if number%100 == 0 { // as many batches in each partition
			if err := producer.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.awaitPending(patience, each)
	k.kill()
	for partition := range 6 {
		k.loseHalf(delayTopic, partition)
	}
	k.start()
	<-l.load(k, each, 2*each, 1000, 5*time.Second)
	l.settle(k, c, targetTopic, 3*each)
	l.verify(t, 3*each, 1, c.elections())
}

// What Kafka has deleted before it could be read is counted, and what comes then is read; so is all of the topic when
// it is created again.
func TestDelayTopicEmptiedAndCreatedAgain_deliversWhatIsThere(t *testing.T) {
	const each, lost = 500, 300
	k, c, l := newStage(t, 1, dirs(t, 1)...)
	produce := func(first, n int) {
		producer := k.client() // one that has not seen the topic before
		for number := range n {
			l.schedule(producer, delayTopic, first+number, time.Now())
		}
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	produce(0, each)
	await(t, patience, "the first are delivered", func() bool { return l.delivered() >= each })
	c.kill()
	producer := k.client()
	for range lost {
		producer.Produce(t.Context(), &kgo.Record{Topic: delayTopic, Headers: []kgo.RecordHeader{{Key: client.HeaderAfter, Value: []byte("1s")}}}, nil)
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.empty(delayTopic)
	c.start()
	await(t, patience, "the records that Kafka deleted are counted", func() bool {
		metrics, err := c.nodes[0].get("/metrics")
		return err == nil && bytes.Contains(metrics, fmt.Appendf(nil, "carillon_source_lost_records_total %d\n", lost))
	})
	produce(each, each)
	await(t, patience, "what came since is delivered", func() bool { return l.delivered() >= 2*each })

	if _, err := kadm.NewClient(k.client()).DeleteTopic(t.Context(), delayTopic); err != nil {
		t.Fatal(err)
	}
	k.create(6, delayTopic)
	produce(2*each, each)
	l.settle(k, c, targetTopic, 3*each)
	l.verify(t, 3*each, 1, c.elections())
}

// loseHalf cuts the later half of the batches off what a broker that was killed has of a partition, as if
// it had not been synced.
//
//	first offset 8 | length of what follows 4 | ...
func (k *kafkaCluster) loseHalf(topic string, partition int) {
	k.t.Helper()
	path := filepath.Join(k.brokers[0].Data, topic+"-"+strconv.Itoa(partition), "00000000000000000000.log")
	batches, err := os.ReadFile(path)
	if err != nil {
		k.t.Fatal(err)
	}
	kept := 0
	for kept+12 < len(batches)/2 {
		kept += 12 + int(binary.BigEndian.Uint32(batches[kept+8:]))
	}
	if kept == 0 || kept >= len(batches) {
		k.t.Fatalf("%s has %d bytes, of which %d are to be kept", path, len(batches), kept)
	}
	if err := os.Truncate(path, int64(kept)); err != nil {
		k.t.Fatal(err)
	}
}
