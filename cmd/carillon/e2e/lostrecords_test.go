package e2e

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
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
