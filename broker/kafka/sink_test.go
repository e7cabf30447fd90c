package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/message"
)

// newSink returns a sink whose connections are open.
func newSink(t *testing.T, kafka bubble) *Sink {
	t.Helper()
	sink, err := NewSink(kafka.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	pass(time.Second)
	return sink
}

// sendAndWait sends one record, waits for its outcome and returns how long that took.
func sendAndWait(sink *Sink, d deliver.Delivery) (time.Duration, error) {
	start := time.Now()
	outcome := make(chan error, 1)
	sink.Send(d, func(_ deliver.Receipt, err error) { outcome <- err })
	err := <-outcome
	return time.Since(start), err
}

func TestSinkKeepsRecordsByteForByte(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		sent := []deliver.Delivery{
			{Topic: "orders"},
			{Topic: "orders", Key: []byte{}, Value: []byte{}, Headers: []message.Header{}},
			{Topic: "orders", Key: []byte("\xff\x00"), Value: []byte("v"), Headers: []message.Header{
				{Key: "b"}, {Key: "a", Value: []byte{}}, {Key: "b", Value: []byte("\xff")}, {Key: ""}, {Key: "a", Value: []byte("2")}}},
		}
		for _, d := range sent {
			if _, err := sendAndWait(sink, d); err != nil {
				t.Fatal(err)
			}
		}
		for i, r := range kafka.records("orders", len(sent)) {
			got := deliver.Delivery{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: messageHeaders(r.Headers)}
			want := sent[i]
			if len(want.Headers) == 0 {
				want.Headers = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record %d: %s", i, diff)
			}
			if age := time.Since(r.Timestamp); age < 0 || age > time.Minute {
				t.Errorf("record %d: timestamp %v is not the moment of delivery", i, r.Timestamp)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestSinkWritesTheChosenPartitionInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		const n = 2000
		var failed atomic.Int64
		for i := range n {
			sink.Send(deliver.Delivery{Topic: "orders", Partition: int32(i % 3), Key: []byte("same"), Value: fmt.Append(nil, i)},
				func(_ deliver.Receipt, err error) {
					if err != nil {
						failed.Add(1)
					}
				})
		}
		next := map[int32]int{0: 0, 1: 1, 2: 2}
		for _, r := range kafka.records("orders", n) {
			if want := fmt.Sprint(next[r.Partition]); string(r.Value) != want {
				t.Fatalf("partition %d: got %s, want %s", r.Partition, r.Value, want)
			}
			next[r.Partition] += 3
		}
		synctest.Wait()
		if failed.Load() != 0 {
			t.Errorf("%d sends failed", failed.Load())
		}
	}, kfake.SeedTopics(3, "orders"))
}

// The outcome of a message tells its consumer where to look.
func TestSinkSaysWhereEachRecordIs(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		const n = 300
		type told struct {
			value string
			deliver.Receipt
		}
		said := make(chan told, n)
		for i := range n {
			d := deliver.Delivery{Topic: "orders", Partition: int32(i % 3), Value: fmt.Append(nil, i)}
			sink.Send(d, func(receipt deliver.Receipt, err error) {
				if err != nil {
					t.Errorf("send: %v", err)
				}
				said <- told{string(d.Value), receipt}
			})
			if i%7 == 0 { // batches of several sizes
				synctest.Wait()
			}
		}
		values := make(map[deliver.Receipt]string)
		for _, r := range kafka.records("orders", n) {
			values[deliver.Receipt{Partition: r.Partition, Offset: r.Offset}] = string(r.Value)
		}
		for range n {
			if r := <-said; values[r.Receipt] != r.value {
				t.Errorf("%s is said to be at %+v, where %q is", r.value, r.Receipt, values[r.Receipt])
			}
		}
	}, kfake.SeedTopics(3, "orders"))
}

// A record that was sent twice may be there without Kafka knowing where.
func TestSinkSaysWhenTheOffsetIsNotKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		kafka.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
			asked := request.(*kmsg.ProduceRequest)
			answer := asked.ResponseKind().(*kmsg.ProduceResponse)
			for _, topic := range asked.Topics {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode, partition.BaseOffset = topic.Partitions[0].Partition, kerr.DuplicateSequenceNumber.Code, -1
				answer.Topics = append(answer.Topics, kmsg.ProduceResponseTopic{Topic: topic.Topic, TopicID: topic.TopicID, Partitions: []kmsg.ProduceResponseTopicPartition{partition}})
			}
			return answer, nil, true
		})
		var got deliver.Receipt
		said := make(chan error, 1)
		sink.Send(deliver.Delivery{Topic: "orders", Partition: 1}, func(receipt deliver.Receipt, err error) {
			got = receipt
			said <- err
		})
		if err := <-said; err != nil || got != (deliver.Receipt{Partition: 1, Offset: -1}) {
			t.Errorf("%+v, %v", got, err)
		}
	}, kfake.SeedTopics(3, "orders"))
}

func TestRetriableErrorDoesNotStallTheTopic(t *testing.T) {
	for _, answer := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable} {
		t.Run(answer.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}
				kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: answer})
				took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"})
				if err != nil || took > 200*time.Millisecond {
					t.Errorf("delivered after %v, %v", took, err)
				}
			}, kfake.SeedTopics(1, "orders"))
		})
	}
}

func TestErrorsWrapTheirSentinel(t *testing.T) {
	for _, tt := range []struct {
		answer *kerr.Error
		want   error
	}{
		{kerr.TopicAuthorizationFailed, deliver.ErrTargetForbidden},
		{kerr.UnknownTopicOrPartition, deliver.ErrTargetMissing},
		{kerr.MessageTooLarge, deliver.ErrRecordTooLarge},
		{kerr.RecordListTooLarge, deliver.ErrRecordTooLarge},
		{kerr.InvalidRecord, deliver.ErrRecordRefused},
		{kerr.InvalidTimestamp, deliver.ErrTargetUnavailable},
		{kerr.PolicyViolation, deliver.ErrRecordRefused},
		{kerr.NotEnoughReplicas, deliver.ErrTargetUnavailable},
		{kerr.UnknownServerError, deliver.ErrTargetUnavailable},
		{kerr.ClusterAuthorizationFailed, deliver.ErrTargetUnavailable},
		{kerr.KafkaStorageError, deliver.ErrTargetUnavailable},
	} {
		t.Run(tt.answer.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				sink := newSink(t, kafka)
				fault := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: tt.answer, Count: -1})
				took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"})
				if !errors.Is(err, tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				if took > recordTimeout+time.Second {
					t.Errorf("failed after %v", took)
				}
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "payments"}); err != nil {
					t.Errorf("another target: %v", err)
				}
				fault.Remove()
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
					t.Errorf("the target after it healed: %v", err)
				}
				if n := len(kafka.records("orders", 1)); n != 1 {
					t.Errorf("%d records in the topic, want the one that was acknowledged", n)
				}
			}, kfake.SeedTopics(1, "orders", "payments"))
		})
	}
}

func TestMissingTopicIsReportedAndFoundOnceItExists(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		if _, err := countOf(t.Context(), sink, "orders"); !errors.Is(err, deliver.ErrTargetMissing) {
			t.Errorf("Partitions: %v, want ErrTargetMissing", err)
		}
		if took, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); !errors.Is(err, deliver.ErrTargetMissing) || took > time.Second {
			t.Errorf("Send: %v after %v, want ErrTargetMissing", err, took)
		}
		if err := sink.CreateTopic(t.Context(), "orders", defaultBatchBytes); err != nil {
			t.Fatal(err)
		}
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
			t.Errorf("Send after the topic was created: %v", err)
		}
	})
}

// The dead-letter topics are looked after all the time; that must not cost a connection each.
func TestCreateTopicUsesTheConnectionThereIs(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		var dials atomic.Int32
		config := kafka.config()
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return kafka.Network.DialContext(ctx, network, address)
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		pass(time.Second) // its connections are open
		var before int32
		for n := range 5 {
			if err := sink.CreateTopic(t.Context(), "dead", defaultBatchBytes); err != nil {
				t.Fatalf("time %d: %v", n+1, err)
			}
			if n == 0 {
				before = dials.Load()
			}
		}
		if more := dials.Load() - before; more > 0 {
			t.Errorf("%d connections were opened to see that the topic is there", more)
		}
	})
}

func TestRecreatedTargetIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		for range 3 {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte("old")}); err != nil {
				t.Fatal(err)
			}
		}
		admin := kafka.admin()
		if _, err := admin.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for {
			_, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte("new")})
			if err == nil {
				break
			}
			if !errors.Is(err, deliver.ErrTargetUnavailable) && !errors.Is(err, deliver.ErrTargetMissing) || time.Since(start) > 5*time.Second {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got := string(kafka.records("orders", 1)[0].Value); got != "new" {
			t.Errorf("the new topic begins with %q", got)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestAddedPartitionIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		if n, err := countOf(t.Context(), sink, "orders"); n != 1 || err != nil {
			t.Fatalf("Partitions = %d, %v", n, err)
		}
		if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		if _, err := kafka.admin().CreatePartitions(t.Context(), 2, "orders"); err != nil {
			t.Fatal(err)
		}
		if n, err := countOf(t.Context(), sink, "orders"); n != 3 || err != nil {
			t.Errorf("Partitions = %d, %v, want 3", n, err)
		}
		_, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Partition: 2})
		if err != nil {
			if !errors.Is(err, deliver.ErrTargetUnavailable) {
				t.Errorf("first send to the new partition: %v", err)
			}
			_, err = sendAndWait(sink, deliver.Delivery{Topic: "orders", Partition: 2})
		}
		if err != nil {
			t.Errorf("send to the new partition: %v", err)
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestLargerTopicTakesLargerRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		limit := "3000000"
		if _, err := kafka.admin().CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "wide"); err != nil {
			t.Fatal(err)
		}
		sink := newSink(t, kafka)
		for topic, want := range map[string]error{"wide": nil, "orders": deliver.ErrRecordTooLarge} {
			if _, err := countOf(t.Context(), sink, topic); err != nil {
				t.Fatal(err)
			}
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic, Value: make([]byte, 2_000_000)}); !errors.Is(err, want) {
				t.Errorf("2 MB to %s: %v, want %v", topic, err, want)
			}
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic, Value: make([]byte, 1_048_000)}); err != nil {
				t.Errorf("1 MB to %s: %v", topic, err)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}

// An error for a limit says nothing of it, unless it is that we may not know it: then it is taken for Kafka's default, once.
func TestLimitThatWasNotToldIsAskedForAgain(t *testing.T) {
	for _, test := range []struct {
		answer *kerr.Error
		asked  int
		want   error
	}{
		{kerr.RequestTimedOut, 2, nil},
		{kerr.UnknownTopicOrPartition, 2, nil},
		{kerr.TopicAuthorizationFailed, 1, deliver.ErrRecordTooLarge},
	} {
		t.Run(test.answer.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				limit := "3000000"
				if _, err := kafka.admin().CreateTopic(t.Context(), 1, 1, map[string]*string{batchLimit: &limit}, "wide"); err != nil {
					t.Fatal(err)
				}
				asked := 0
				kafka.ControlKey(int16(kmsg.DescribeConfigs), func(request kmsg.Request) (kmsg.Response, error, bool) {
					kafka.KeepControl()
					if asked++; asked > 1 {
						return nil, nil, false
					}
					answer := request.ResponseKind().(*kmsg.DescribeConfigsResponse)
					resource := kmsg.NewDescribeConfigsResponseResource()
					resource.ResourceType, resource.ResourceName, resource.ErrorCode = kmsg.ConfigResourceTypeTopic, "wide", test.answer.Code
					answer.Resources = append(answer.Resources, resource)
					return answer, nil, true
				})
				sink := newSink(t, kafka)
				for range 3 {
					if _, err := countOf(t.Context(), sink, "wide"); err != nil {
						t.Fatal(err)
					}
				}
				if asked != test.asked {
					t.Errorf("asked %d times, want %d", asked, test.asked)
				}
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "wide", Value: make([]byte, 2_000_000)}); !errors.Is(err, test.want) {
					t.Errorf("2 MB to a topic that takes 3 MB: %v, want %v", err, test.want)
				}
			})
		})
	}
}

func TestRaisedLimitIsSeenByTheNextTry(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sink := newSink(t, kafka)
		lines := func() int {
			sink.mu.Lock()
			defer sink.mu.Unlock()
			return len(sink.open)
		}
		large := deliver.Delivery{Topic: "orders", Value: make([]byte, 2_000_000)}
		try := func() error {
			t.Helper()
			if _, err := countOf(t.Context(), sink, "orders"); err != nil {
				t.Fatal(err)
			}
			_, err := sendAndWait(sink, large)
			return err
		}
		for range 3 {
			if err := try(); !errors.Is(err, deliver.ErrRecordTooLarge) {
				t.Fatalf("2 MB before the limit is raised: %v", err)
			}
		}
		if _, err := countOf(t.Context(), sink, "orders"); err != nil || lines() != quickPools {
			t.Errorf("a limit that stays the same costs a client, or %v", err)
		}
		limit := "3000000"
		if _, err := kafka.admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, "orders"); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour) // nothing is due meanwhile
		if err := try(); err != nil {
			t.Errorf("2 MB after the limit was raised: %v", err)
		}
	}, kfake.SeedTopics(1, "orders"))
}
