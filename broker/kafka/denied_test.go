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
