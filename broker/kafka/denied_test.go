package kafka

import (
	"errors"
	"slices"
	"sync/atomic"
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

// What Kafka answers to a client that asks for a producer id, franz-go keeps for good, unless trying again may change it. It is
// no fault of the record that waited for the id, though it may read like one, and it ends with Kafka's trouble.
func TestKeptErrorIsNoFaultOfARecord(t *testing.T) {
	for _, answer := range []*kerr.Error{kerr.UnknownServerError, kerr.PolicyViolation, kerr.MessageTooLarge} {
		t.Run(answer.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				fault := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: answer, Count: -1})
				sink, err := NewSink(kafka.config())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(sink.Close)
				for range 10 {
					if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); !errors.Is(err, deliver.ErrTargetUnavailable) {
						t.Errorf("while Kafka gives no ids: %v, want %v", err, deliver.ErrTargetUnavailable)
					}
					pass(100 * time.Millisecond)
				}
				fault.Remove()
				pass(10 * time.Second)
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
					t.Errorf("ten seconds after Kafka gives ids: %v", err)
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
}

// Kafka may deny the id to the line of a record after the line that was made ahead has looked whether that one works.
func TestLineThatIsDeniedLateIsReplaced(t *testing.T) {
	topics := []string{"orders", "bills", "news", "cards"}
	for denied := range int32(16) {
		inBubble(t, func(t *testing.T, kafka bubble) {
			var asked atomic.Int32
			kafka.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
				kafka.KeepControl()
				if asked.Add(1)-1 != denied {
					return nil, nil, false
				}
				kafka.SleepControl(func() { pass(time.Second) })
				answer := r.ResponseKind().(*kmsg.InitProducerIDResponse)
				answer.ErrorCode = kerr.ClusterAuthorizationFailed.Code
				return answer, nil, true
			})
			sink, err := NewSink(kafka.config())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(sink.Close)
			for _, topic := range topics {
				sink.Send(deliver.Delivery{Topic: topic}, func(deliver.Receipt, error) {})
			}
			pass(10 * time.Second)
			for _, topic := range topics {
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic}); err != nil {
					t.Errorf("long after the client that was number %d to ask was denied: %v", denied, err)
				}
			}
		}, kfake.SeedTopics(1, topics...))
	}
}

// What is slow takes lines of its own, which are made when they are needed, perhaps while Kafka denies ids.
func TestSlowLineThatIsDeniedIsReplaced(t *testing.T) {
	topics := []string{"orders", "bills", "news", "cards"}
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		kafka.delay(func(string) time.Duration { return 400 * time.Millisecond })
		sink.Partitions(t.Context(), topics)
		failed := func(d time.Duration) (n int) {
			var failures atomic.Int32
			for end := time.Now().Add(d); time.Now().Before(end); pass(500 * time.Millisecond) {
				for _, topic := range topics {
					sink.Send(deliver.Delivery{Topic: topic}, func(_ deliver.Receipt, err error) {
						if err != nil {
							failures.Add(1)
						}
					})
				}
			}
			pass(10 * time.Second)
			return int(failures.Load())
		}
		denied := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		if n := failed(time.Minute); n == 0 {
			t.Fatal("no slow line was made while Kafka denied ids")
		}
		denied.Remove()
		pass(tendEvery)
		if n := failed(time.Minute); n > 0 {
			t.Errorf("%d records fail long after Kafka gives ids again", n)
		}
	}, kfake.SeedTopics(1, topics...))
}
