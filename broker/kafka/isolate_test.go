package kafka

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// hang leaves the next request of the kind unanswered until release is called, and with it those behind it
// on the same connection.
func (b bubble) hang(key kmsg.Key) (release func()) {
	released := make(chan struct{})
	var hanging atomic.Bool
	b.Gate.Hold(func(request kafkatest.Request) {
		if request.Key() == key.Int16() && hanging.CompareAndSwap(false, true) {
			<-released
		}
	})
	return func() { close(released) }
}

func TestIsolatedTargetIsServedWhileItsOldRequestHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		release := kafka.hang(kmsg.Produce)
		var abandoned, others atomic.Int64
		for range 3 {
			sink.Send(deliver.Delivery{Topic: "orders"}, func(_ deliver.Receipt, err error) {
				if errors.Is(err, deliver.ErrAbandoned) {
					abandoned.Add(1)
				} else {
					others.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := abandoned.Load() + others.Load(); n != 0 {
			t.Fatalf("%d outcomes while Kafka does not answer", n)
		}

		sink.Isolate("orders")
		synctest.Wait()
		if abandoned.Load() != 3 {
			t.Errorf("%d abandoned at once, want 3", abandoned.Load())
		}
		if took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte("after")}); err != nil || took > time.Second {
			t.Errorf("send on the target's own client: %v after %v", err, took)
		}

		release()
		time.Sleep(time.Minute)
		if abandoned.Load() != 3 || others.Load() != 0 {
			t.Errorf("outcomes after Kafka answered: %d abandoned and %d others, want 3 and 0", abandoned.Load(), others.Load())
		}
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "payments"}); err != nil {
			t.Errorf("another target: %v", err)
		}
	}, kfake.SeedTopics(1, "orders", "payments"))
}

func TestHealedTargetReturnsToTheQuick(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		for _, topic := range []string{"orders", "payments"} {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic}); err != nil {
				t.Fatal(err)
			}
		}
		poolOf := func() *pool {
			sink.mu.Lock()
			defer sink.mu.Unlock()
			return sink.poolOf(sink.target("orders", time.Now()), time.Now())
		}
		for range 3 {
			sink.Isolate("orders")
			if poolOf() != sink.stuck {
				t.Error("orders joined others before anything got through")
			}
			for range 2 { // the first proves that it answers
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}
			}
			if poolOf() != sink.target("orders", time.Now()).quick {
				t.Error("orders did not return when it answered")
			}
		}
		if n := len(kafka.records("orders", 7)); n != 7 {
			t.Errorf("%d records, want 7", n)
		}
	}, kfake.SeedTopics(1, "orders", "payments"))
}

// Each target that Kafka deletes makes the sink leave its client; what it writes afterwards must be
// written, and not be taken for a repeat.
func TestNothingIsAcknowledgedUnwritten(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		acknowledged := 0
		for i := range 30 {
			switch i % 3 {
			case 1:
				kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.UnknownTopicOrPartition, Count: 10})
			case 2:
				sink.Isolate("orders")
			}
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err == nil {
				acknowledged++
			}
		}
		if n := len(kafka.records("orders", acknowledged)); n != acknowledged || n == 0 {
			t.Errorf("%d acknowledged, %d in the topic", acknowledged, n)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestCloseAbandonsWhatIsOutstanding(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		release := kafka.hang(kmsg.Produce)
		defer release()
		outcome := make(chan error, 2)
		sink.Send(deliver.Delivery{Topic: "orders"}, func(_ deliver.Receipt, err error) { outcome <- err })
		synctest.Wait()
		sink.Close()
		sink.Send(deliver.Delivery{Topic: "orders"}, func(_ deliver.Receipt, err error) { outcome <- err })
		for range 2 {
			if err := <-outcome; !errors.Is(err, deliver.ErrAbandoned) {
				t.Errorf("outcome %v, want ErrAbandoned", err)
			}
		}
		sink.Isolate("orders")
		sink.Close()
	}, kfake.SeedTopics(1, "orders"))
}

// A record that was sent and not answered has no outcome before Kafka is back; what was never sent fails.
func TestUnreachableKafkaFailsInBoundedTime(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		kafka.Close()
		took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"})
		if !errors.Is(err, deliver.ErrTargetUnavailable) || took > 2*recordTimeout {
			t.Errorf("send: %v after %v", err, took)
		}
		start := time.Now()
		if _, err := countOf(t.Context(), sink, "orders"); !errors.Is(err, deliver.ErrTargetUnavailable) || time.Since(start) > 2*questionTimeout {
			t.Errorf("Partitions: %v after %v", err, time.Since(start))
		}
	}, kfake.SeedTopics(1, "orders"))
}

// The client asks for the metadata of a topic that it holds and cannot load every 50 ms.
func TestMissingTopicCostsNothingOnceItIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "secret", Err: kerr.TopicAuthorizationFailed, Count: -1})
		for topic, want := range map[string]error{"orders": nil, "nowhere": deliver.ErrTargetMissing, "secret": deliver.ErrTargetForbidden} {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic}); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", topic, err, want)
			}
		}
		if _, err := kafka.admin().DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err == nil {
			t.Error("a deleted topic took a record")
		}
		requests := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Count: -1, Observe: true})
		pass(time.Minute)
		if n := requests.Hits(); n > 10 {
			t.Errorf("%d metadata requests in a minute", n)
		}
	}, kfake.SeedTopics(1, "orders", "secret"))
}
