package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

// A topic that we may describe and not write is tried again and again, and each time its line
// forgets it. The others keep the line that they share, and what its client knows of them.
func TestDeniedTargetCostsTheOthersNothing(t *testing.T) {
	others := []string{"orders", "bills", "news"}
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "denied", Err: kerr.TopicAuthorizationFailed, Count: -1})
		sink := newSink(t, kafka)
		sink.Partitions(t.Context(), append(others, "denied"))
		for i := range 20 {
			if i > 0 {
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "denied"}); err == nil {
					t.Fatal("written to a topic that is denied")
				}
			}
			for _, topic := range others {
				took, err := sendAndWait(sink, deliver.Delivery{Topic: topic})
				if err != nil {
					t.Fatal(err)
				}
				if i > 0 && took > 0 {
					t.Fatalf("a record of %s took %v after %d tries, want no time: it waited for metadata", topic, took, i)
				}
				pass(time.Millisecond)
			}
			pass(5 * time.Second)
		}
	}, kfake.SeedTopics(1, slices.Concat(others, []string{"denied"})...))
}

// A client that Kafka has denied a producer id never asks again, and a topic's pool has one first line. When Kafka gives ids
// again, that line is another.
func TestDeniedProducerIDIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		denied := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		sink := newSink(t, kafka)
		for range 3 {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err == nil {
				t.Fatal("written without a producer id")
			}
			pass(20 * time.Second)
		}
		denied.Remove()
		pass(tendEvery)
		before := denied.Hits()
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
			t.Errorf("after Kafka has given ids again, denied %d times before: %v", before, err)
		}
		if before > 100 {
			t.Errorf("Kafka was asked for an id %d times in a minute in which it gives none", before)
		}
	}, kfake.SeedTopics(1, "orders"))
}
