package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

// A hand is what somebody does while handing a record over to the Kafka client.
type hand func(*kgo.Record)

func (h hand) OnProduceRecordBuffered(r *kgo.Record) { h(r) }

// What one goroutine sends to a partition is written in that order, whoever hands it to
// the Kafka client: the goroutine that sends, or one that hears an answer.
func TestRecordsOfAPartitionKeepTheirOrder(t *testing.T) {
	const topics, sends = 4, 1000
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		config := kafka.config()
		config.Hooks = append(config.Hooks, hand(func(r *kgo.Record) {
			if binary.BigEndian.Uint32(r.Value)%10 == 3 { // as one who loses the processor
				pass(300 * time.Microsecond)
			}
		}))
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		kafka.delay(func(string) time.Duration { return time.Millisecond })
		sink.Partitions(t.Context(), names)
		var senders, outcomes sync.WaitGroup
		for _, topic := range names {
			senders.Go(func() {
				for i := range sends {
					outcomes.Add(1)
					sink.Send(deliver.Delivery{Topic: topic, Value: binary.BigEndian.AppendUint32(nil, uint32(i))}, func(_ deliver.Receipt, err error) {
						if err != nil {
							t.Errorf("record %d of %s: %v", i, topic, err)
						}
						outcomes.Done()
					})
					pass(100 * time.Microsecond)
				}
			})
		}
		senders.Wait()
		outcomes.Wait()
		for _, topic := range names {
			for i, r := range kafka.records(topic, sends) {
				if got := binary.BigEndian.Uint32(r.Value); got != uint32(i) {
					t.Fatalf("record %d was written to %s at offset %d", got, topic, i)
				}
			}
		}
	}, kfake.SeedTopics(1, names...))
}

// When a record fails, all that was sent behind it to its partition before that is known
// fails as well: it would be written before what failed is sent again.
func TestNothingOvertakesWhatFailed(t *testing.T) {
	const sends = 100
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		// Not in the moment of a send: one that comes between the failure and its telling is behind nothing any more.
		kafka.delay(func(string) time.Duration { return 2050 * time.Microsecond })
		countOf(t.Context(), sink, "orders")
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.MessageTooLarge})
		var mu sync.Mutex
		firstFailed, written := sends, []int(nil)
		var outcomes sync.WaitGroup
		for i := range sends {
			mu.Lock()
			failed := firstFailed < sends
			mu.Unlock()
			if failed {
				break // nothing more is sent, as a lane does
			}
			outcomes.Add(1)
			sink.Send(deliver.Delivery{Topic: "orders"}, func(_ deliver.Receipt, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					firstFailed = min(firstFailed, i)
				} else {
					written = append(written, i)
				}
				outcomes.Done()
			})
			pass(100 * time.Microsecond)
		}
		outcomes.Wait()
		if firstFailed == sends {
			t.Fatal("nothing failed")
		}
		for _, i := range written {
			if i > firstFailed {
				t.Errorf("record %d was written, record %d before it had failed", i, firstFailed)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}

// What has departed together with a record that fails, and was not handed over before, fails as well, and so does what
// has departed when its target is given up.
func TestWhatHasDepartedIsRecalled(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		config := kafka.config()
		var handed atomic.Int64
		config.Hooks = append(config.Hooks, hand(func(r *kgo.Record) {
			if string(r.Value) == "behind" {
				handed.Add(1)
			}
			if string(r.Value) == "slow" {
				pass(50 * time.Millisecond)
			}
		}))
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		countOf(t.Context(), sink, "orders")
		for partition := range int32(2) {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Partition: partition}); err != nil {
				t.Fatal(err)
			}
		}
		kafka.delay(func(string) time.Duration { return 10 * time.Millisecond })
		var mu sync.Mutex
		outcomes := make(map[string]error)
		round := func(meanwhile func()) {
			clear(outcomes)
			// Two records fly, one behind the other. The others wait, and depart together when the first is written.
			for i, value := range []string{"first", "second", "slow", "behind"} {
				d := deliver.Delivery{Topic: "orders", Partition: int32(1 - i%2), Value: []byte(value)}
				sink.Send(d, func(_ deliver.Receipt, err error) {
					mu.Lock()
					defer mu.Unlock()
					outcomes[value] = err
				})
				synctest.Wait() // a request each
			}
			pass(30 * time.Millisecond) // the second has its outcome, and the third is handed over
			meanwhile()
			pass(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if len(outcomes) != 4 {
				t.Fatalf("outcomes of 4 records: %v", outcomes)
			}
		}
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0}, Err: kerr.MessageTooLarge})
		round(func() {})
		if outcomes["first"] != nil || outcomes["slow"] != nil {
			t.Errorf("records of another partition: %v, %v", outcomes["first"], outcomes["slow"])
		}
		if outcomes["second"] == nil || outcomes["behind"] == nil {
			t.Errorf("%v, and of what is behind it: %v; want both to fail", outcomes["second"], outcomes["behind"])
		}
		round(func() { sink.Isolate("orders") })
		if !errors.Is(outcomes["slow"], deliver.ErrAbandoned) || !errors.Is(outcomes["behind"], deliver.ErrAbandoned) {
			t.Errorf("given up: %v, %v", outcomes["slow"], outcomes["behind"])
		}
		if handed.Load() > 0 {
			t.Error("a record was handed over after it had been recalled")
		}
	}, kfake.SeedTopics(2, "orders"))
}

// Who sends hears of a failure a moment after the sink. What it sends until then is not written, or it would be before what
// failed; it fails as well, until another series is begun.
func TestNothingIsWrittenBetweenAFailureAndItsHearing(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.MessageTooLarge, Count: 1})
		series := new(deliver.Series)
		meanwhile := make(chan error, 2)
		first := make(chan error)
		sink.Send(deliver.Delivery{Topic: "orders", Value: []byte("1"), Series: series}, func(_ deliver.Receipt, err error) {
			for partition := range int32(2) { // the sink knows, and the sender does not: this tells it
				sink.Send(deliver.Delivery{Topic: "orders", Partition: partition, Value: []byte("2"), Series: series}, func(_ deliver.Receipt, err error) { meanwhile <- err })
			}
			go func() { first <- err }()
		})
		for _, outcome := range []error{<-first, <-meanwhile, <-meanwhile} {
			if !errors.Is(outcome, deliver.ErrRecordTooLarge) {
				t.Errorf("outcome %v, want that of the first that failed", outcome)
			}
		}
		series = new(deliver.Series)
		for _, value := range []string{"1", "2"} {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte(value), Series: series}); err != nil {
				t.Error(err)
			}
		}
		for i, r := range kafka.records("orders", 2) {
			if want := fmt.Sprint(i + 1); string(r.Value) != want {
				t.Errorf("record %q was written at offset %d, want %q", r.Value, i, want)
			}
		}
	}, kfake.SeedTopics(2, "orders"))
}
