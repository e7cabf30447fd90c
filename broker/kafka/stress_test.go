package kafka

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

func TestEverySendHasOneOutcome(t *testing.T) {
	const topics, sends = 4, 300
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		kafka.Fault(
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: names[0], Err: kerr.UnknownTopicID, Count: 20},
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: names[1], Err: kerr.NotEnoughReplicas, Count: 20},
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: names[2], Err: kerr.MessageTooLarge, Count: 20},
		)
		var outcomes [topics][sends]atomic.Int32
		var delivered [topics]atomic.Int32
		var senders sync.WaitGroup
		for i, topic := range names {
			senders.Go(func() {
				for j := range sends {
					sink.Send(deliver.Delivery{Topic: topic}, func(_ deliver.Receipt, err error) {
						outcomes[i][j].Add(1)
						if err == nil {
							delivered[i].Add(1)
						}
					})
					if j%50 == 10 {
						time.Sleep(time.Millisecond)
					}
					if j%100 == 20*i {
						sink.Isolate(topic)
					}
					if _, err := countOf(t.Context(), sink, topic); err != nil && !errors.Is(err, deliver.ErrTargetUnavailable) {
						t.Errorf("Partitions: %v", err)
					}
				}
			})
		}
		senders.Wait()
		pass(time.Minute)
		for i, topic := range names {
			for tries := 0; ; tries++ {
				_, err := sendAndWait(sink, deliver.Delivery{Topic: topic})
				if err == nil {
					delivered[i].Add(1)
					break
				}
				if tries > 20 {
					t.Fatalf("%s is not delivered to any more: %v", topic, err)
				}
			}
		}
		sink.Close()
		synctest.Wait()
		for i, topic := range names {
			for j := range sends {
				if n := outcomes[i][j].Load(); n != 1 {
					t.Fatalf("send %d to %s has %d outcomes", j, topic, n)
				}
			}
			kafka.records(topic, int(delivered[i].Load()))
		}
	}, kfake.SeedTopics(1, names...))
}
