package kafka

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// One of many targets falls silent: Kafka writes what it is sent and does not answer. Those that were in one request with it
// then are given up with it, and are written once more; not once more for each time that the silent one is tried.
func TestWhoFlewWithASilentTargetIsWrittenOnceMore(t *testing.T) {
	const silents, others, lanePatience = 3, 60, 5 * time.Second
	var names []string
	for i := range silents + others {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		sink.Partitions(t.Context(), names)
		for _, name := range names {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: name}); err != nil {
				t.Fatal(err)
			}
		}
		silent := make(map[string]bool)
		for _, name := range names[others/2:][:silents] { // neither the first nor the last to send: those fly alone
			silent[name] = true
		}
		var mu sync.Mutex
		written := make(map[string]int) // how often it was in a request
		release := make(chan struct{})
		kafka.requests(func(topics []string) {
			pass(time.Millisecond)
			hold := false
			mu.Lock()
			for _, topic := range topics {
				written[topic]++
				hold = hold || silent[topic]
			}
			mu.Unlock()
			if hold {
				<-release
			}
		})
		ctx, until := t.Context(), time.Now().Add(5*time.Minute)
		var lanes sync.WaitGroup
		var longest time.Duration
		for _, name := range names {
			lanes.Go(func() {
				start := time.Now()
				for time.Now().Before(until) && ctx.Err() == nil {
					outcome := make(chan error, 1)
					sink.Send(deliver.Delivery{Topic: name}, func(_ deliver.Receipt, err error) { outcome <- err })
					select {
					case err := <-outcome:
						if err == nil {
							mu.Lock()
							longest = max(longest, time.Since(start))
							mu.Unlock()
							return
						}
					case <-time.After(lanePatience):
						sink.Isolate(name)
						<-outcome
					}
					pass(100 * time.Millisecond)
				}
			})
		}
		lanes.Wait()
		close(release)
		pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		counts := make(map[int]int)
		for _, name := range names {
			n := written[name]
			if silent[name] {
				if n < 10 {
					t.Errorf("%s was tried %d times in five minutes", name, n)
				}
				continue
			}
			counts[n]++
			if n < 1 || n > 2 {
				t.Errorf("a record for %s was written %d times beside silent targets, want once or twice", name, n)
			}
		}
		t.Logf("written so often: so many targets: %v; the last that answers after %v", counts, longest)
		if counts[2] == 0 {
			t.Error("nobody was in a request with a silent target")
		}
		if longest > 2*lanePatience {
			t.Errorf("a target that answers waited %v", longest)
		}
	}, kfake.SeedTopics(1, names...))
}

// requests has Kafka hold each request that writes until hold, which is called with its topics, has returned.
func (b bubble) requests(hold func(topics []string)) {
	b.t.Helper()
	topics, err := b.admin().ListTopics(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	names := make(map[kadm.TopicID]string)
	for _, topic := range topics {
		names[topic.ID] = topic.Topic
	}
	b.Gate.Hold(func(request kafkatest.Request) {
		produce, writes := request.Request.(*kmsg.ProduceRequest)
		if !writes {
			return
		}
		var of []string
		for _, topic := range produce.Topics {
			name := topic.Topic
			if name == "" {
				name = names[topic.TopicID]
			}
			of = append(of, name)
		}
		hold(of)
	})
}
