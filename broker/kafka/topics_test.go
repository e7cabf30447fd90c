package kafka

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

const (
	largeRecord  = 16 << 20
	largeEnough  = largeRecord + 1<<20
	deadLetterIn = "dead"
)

// write sends one record as a lane does, which asks for the partitions first.
func write(t *testing.T, sink *Sink, value []byte) error {
	t.Helper()
	if _, err := countOf(t.Context(), sink, deadLetterIn); err != nil {
		t.Fatal(err)
	}
	_, err := sendAndWait(sink, deliver.Delivery{Topic: deadLetterIn, Value: value})
	return err
}

func TestCreatedTopicTakesLargeRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		if err := sink.CreateTopic(t.Context(), deadLetterIn, largeEnough); err != nil {
			t.Fatal(err)
		}
		value := bytes.Repeat([]byte("value..."), largeRecord/8)
		if err := write(t, sink, value); err != nil {
			t.Fatalf("16 MiB: %v", err)
		}
		if got := kafka.records(deadLetterIn, 1)[0].Value; !bytes.Equal(got, value) {
			t.Errorf("%d other bytes arrived, want %d", len(got), len(value))
		}
	})
}

func TestTopicIsCreatedThoughItsLimitIsRefused(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.InvalidConfig, kerr.PolicyViolation} {
		t.Run(refusal.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: refusal, Count: 1})
				sink := newSink(t, kafka)
				if err := sink.CreateTopic(t.Context(), deadLetterIn, largeEnough); err != nil {
					t.Fatal(err)
				}
				if err := write(t, sink, make([]byte, 1_048_000)); err != nil {
					t.Errorf("1 MB: %v", err)
				}
				if err := write(t, sink, make([]byte, 2_000_000)); !errors.Is(err, deliver.ErrRecordTooLarge) {
					t.Errorf("2 MB to a topic with Kafka's default: %v", err)
				}
			})
		})
	}
}

func TestTopicThatMayNotBeCreatedIsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation, Count: 2})
		if err := newSink(t, kafka).CreateTopic(t.Context(), deadLetterIn, largeEnough); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("%v, want %v", err, kerr.PolicyViolation)
		}
	})
}

// Where Kafka answers all but the question for the limits of topics, what goes to a target that was idle waits for that now and then
// and not each time. A record that is refused for its size has it asked at once all the same.
func TestSilentLimitsDelayFewRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		limit := "3000000"
		if _, err := kafka.admin().CreateTopic(t.Context(), 1, 1, map[string]*string{batchLimit: &limit}, "wide"); err != nil {
			t.Fatal(err)
		}
		sink := newSink(t, kafka)
		var answers atomic.Bool
		kafka.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
			kafka.KeepControl()
			if answers.Load() {
				return nil, nil, false
			}
			kafka.SleepControl(func() { pass(7 * time.Second) })
			return nil, nil, true
		})
		const hours, each = 6, 30 * time.Second
		late := 0
		for range hours * int(time.Hour/each) {
			begin := time.Now()
			if _, err := countOf(t.Context(), sink, "wide"); err != nil || time.Since(begin) > time.Second {
				late++
			}
			pass(each)
		}
		if most := 20; late > most {
			t.Errorf("late %d times in %d hours, want %d at most", late, hours, most)
		}
		answers.Store(true)
		for try, want := range []error{deliver.ErrRecordTooLarge, nil} {
			if _, err := countOf(t.Context(), sink, "wide"); err != nil {
				t.Fatal(err)
			}
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "wide", Value: make([]byte, 2_000_000)}); !errors.Is(err, want) {
				t.Errorf("try %d of 2 MB for a topic that takes 3 MB: %v, want %v", try, err, want)
			}
		}
	})
}
