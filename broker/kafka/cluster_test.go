package kafka

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// A mirror, or a Kafka that was set up anew, has the same topics with other records: nothing of it is read or written
// unless somebody says so.
func TestAnotherKafkaIsNotUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kafka-cluster-id")
	// ask returns what a process with that file hears of a Kafka that calls itself so.
	ask := func(id string) (write deliver.PartitionCount, read error) {
		inBubble(t, func(t *testing.T, kafka bubble) {
			c := kafka.config()
			var err error
			if c.Cluster, err = reach.OpenCluster(path); err != nil {
				t.Fatal(err)
			}
			source := newReaderOf(t, c)
			_, _, read = source.Topics(t.Context(), nil)
			sink, err := NewSink(c)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			write = sink.Partitions(t.Context(), []string{"orders"})[0]
		}, kfake.ClusterID(id), kfake.SeedTopics(1, "orders.delay", "orders"))
		return write, read
	}
	for range 2 {
		if write, read := ask("first"); read != nil || write.Err != nil || write.Count != 1 {
			t.Fatalf("the first Kafka is not used: %v; %+v", read, write)
		}
	}
	write, read := ask("second")
	for _, err := range []error{read, write.Err} {
		if err == nil || !strings.Contains(err.Error(), `another Kafka answers: it calls itself "second", and this node has used "first"`) || !strings.Contains(err.Error(), "delete "+path) {
			t.Errorf("another Kafka: %v", err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if write, read := ask("second"); read != nil || write.Err != nil {
		t.Errorf("the second Kafka is not used once the first is forgotten: %v; %v", read, write.Err)
	}
	if _, read := ask("first"); read == nil {
		t.Error("the first is used again")
	}
}

// A node that has never led has to know its Kafka all the same.
func TestKafkaIsLearnedByWhoDoesNotAskIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kafka-cluster-id")
	for _, id := range []string{"first", "second"} {
		inBubble(t, func(t *testing.T, kafka bubble) {
			cluster, err := reach.OpenCluster(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := cluster.Learn(t.Context(), kafka.config()); err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(path); string(text) != "first\n" || err != nil {
				t.Errorf("of the Kafka %q it noted %q, %v", id, text, err)
			}
		}, kfake.ClusterID(id))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		cluster, err := reach.OpenCluster(filepath.Join(t.TempDir(), "no", "folder"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := cluster.Learn(ctx, kafka.config()); err != nil || ctx.Err() == nil {
			t.Errorf("it ends with %v before what it has learned is noted", err)
		}
	})
}
