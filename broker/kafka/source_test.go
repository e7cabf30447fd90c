package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

func TestArrivalsAreParsedAndOtherwiseUnchanged(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		sent := time.UnixMilli(1_900_000_000_000)
		kafka.produce(
			&kgo.Record{Topic: "orders.delay", Timestamp: sent, Headers: []kgo.RecordHeader{
				{Key: "a"}, {Key: "deliver-after", Value: []byte("90s")}, {Key: "a", Value: []byte{}}, {Key: "deliver-to", Value: []byte("t")},
				{Key: "deliver-key", Value: []byte("k")}, {Key: "a", Value: []byte("\xff")}, {Key: "deliver-id", Value: []byte("i")}, {Key: "deliver-partition", Value: []byte("3")}}},
			&kgo.Record{Topic: "orders.delay", Timestamp: sent, Key: []byte{}, Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "deliver-cron", Value: []byte("@daily")}}},
			&kgo.Record{Topic: "orders.delay", Timestamp: sent, Key: []byte("k"), Value: []byte("v")},
		)
		r := newReader(t, kafka)
		r.discover()
		got := r.read(3)

		h := func(key, value string) message.Header { return message.Header{Key: key, Value: []byte(value)} }
		want := []ingest.Arrival{
			{Offset: 0, Time: sent.UnixMilli(),
				Headers: []message.Header{{Key: "a"}, h("deliver-after", "90s"), h("a", ""), h("deliver-to", "t"), h("deliver-key", "k"),
					h("a", "\xff"), h("deliver-id", "i"), h("deliver-partition", "3")},
				Instruction: ingest.Instruction{DueAt: 1_900_000_090_000, To: "t", Partition: 3, ID: "i"}},
			{Offset: 1, Time: sent.UnixMilli(), Key: []byte{}, Value: []byte{}, Headers: []message.Header{h("deliver-cron", "@daily")},
				Problem: &message.Problem{Code: message.CodeUnsupported,
					Message: `deliver-cron "@daily" is not supported by this version: send the record without this header`}},
			{Offset: 2, Time: sent.UnixMilli(), Key: []byte("k"), Value: []byte("v"), Headers: []message.Header{},
				Problem: &message.Problem{Code: message.CodeMalformed,
					Message: "deliver-at is missing: say when to deliver with deliver-at, RFC 3339 or epoch milliseconds, or with deliver-after, such as 90s"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

func TestArrivalSaysWhatTheHeadersAskFor(t *testing.T) {
	at := client.At(time.UnixMilli(1_900_000_000_000))
	const cluster = "000102030405060708090a0b0c0d0e0f"
	for name, tt := range map[string]struct {
		options []client.Option
		want    ingest.Instruction
	}{
		"cancel":  {[]client.Option{client.Cancel("i")}, ingest.Instruction{Cancel: true, Partition: -1, ID: "i"}},
		"absent":  {[]client.Option{at, client.ID("i"), client.IfAbsent()}, ingest.Instruction{DueAt: 1_900_000_000_000, Partition: -1, ID: "i", If: raftfsm.Absent}},
		"present": {[]client.Option{at, client.ID("i"), client.IfPresent()}, ingest.Instruction{DueAt: 1_900_000_000_000, Partition: -1, ID: "i", If: raftfsm.Present}},
		"exactly": {[]client.Option{client.Cancel("i"), client.IfSeq(cluster + "/7")}, ingest.Instruction{Cancel: true, Partition: -1, ID: "i", If: raftfsm.Exactly, Seq: 7, Cluster: cluster}},
		"expires": {[]client.Option{at, client.ExpiresAfter(time.Second)}, ingest.Instruction{DueAt: 1_900_000_000_000, Expires: 1_900_000_001_000, Partition: -1}},
	} {
		r := &kgo.Record{Topic: "orders.delay"}
		if err := client.Stamp(r, tt.options...); err != nil {
			t.Fatal(err)
		}
		got := arrival(r, messageHeaders(r.Headers))
		if diff := cmp.Diff(tt.want, got.Instruction); diff != "" || got.Problem != nil {
			t.Errorf("%s: %v\n%s", name, got.Problem, diff)
		}
	}
}

func TestOnlyCommittedRecordsAreReadAndMarkersMoveThePosition(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		producer := kafka.client(kgo.TransactionalID("t"))
		for i, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := producer.ProduceSync(t.Context(), delayed(fmt.Sprint(i)), delayed(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(t.Context(), commit); err != nil {
				t.Fatal(err)
			}
		}
		r := newReader(t, kafka)
		found := r.discover()
		arrivals := r.read(4)
		var got []string
		for _, a := range arrivals {
			got = append(got, string(a.Value))
		}
		if diff := cmp.Diff([]string{"0", "0", "2", "2"}, got); diff != "" {
			t.Error(diff)
		}
		if len(found) != 1 || found[0].Earliest != 0 || found[0].Latest != 9 {
			t.Fatalf("found %+v, want offsets 0 to 9", found)
		}
		// The last marker may come in a batch of its own.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for r.next[0] < found[0].Latest {
			batches, err := r.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			r.next[0] = batches[len(batches)-1].Next
		}
		if r.next[0] != 9 {
			t.Errorf("next offset %d, want 9: no lag is left", r.next[0])
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

func TestAddedTopicsAndPartitionsAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		if found := r.discover(); len(found) != 0 {
			t.Fatalf("found %+v in a Kafka without delay topics", found)
		}
		arrived := make(chan time.Duration, 1)
		admin := kafka.admin()
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders.delay"); err != nil {
			t.Fatal(err)
		}
		for partitions := range int32(2) {
			if partitions > 0 {
				if _, err := admin.CreatePartitions(t.Context(), 1, "orders.delay"); err != nil {
					t.Fatal(err)
				}
			}
			record := delayed("new")
			record.Partition = partitions
			kafka.produce(record)
			start := time.Now()
			go func() {
				r.read(1)
				arrived <- time.Since(start)
			}()
			pass(time.Second) // what ingest waits between looks
			r.discoverBeside(partitions)
			if took := <-arrived; took > 2*time.Second {
				t.Errorf("partition %d was read after %v", partitions, took)
			}
		}
	}, kfake.SeedTopics(1, "orders"))
}

func TestRecreatedTopicIsReadFromItsBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("old 1"), delayed("old 2"))
		r := newReader(t, kafka)
		before := r.discover()
		r.read(2)
		admin := kafka.admin()
		if _, err := admin.DeleteTopic(t.Context(), "orders.delay"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders.delay"); err != nil {
			t.Fatal(err)
		}
		kafka.produce(delayed("new"))
		clear(r.next)
		pass(time.Second) // what ingest waits between looks
		after := r.discover()
		if after[0].TopicID == before[0].TopicID || after[0].Latest != 1 {
			t.Fatalf("found %+v, before %+v", after, before)
		}
		if got := r.read(1); string(got[0].Value) != "new" || got[0].Offset != 0 {
			t.Errorf("read %q at offset %d", got[0].Value, got[0].Offset)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

func TestReassignedPartitionsKeepTheirPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"), delayed("1"))
		r := newReader(t, kafka)
		found := r.discover()
		r.read(2)
		for range 3 {
			kafka.produce(delayed("more"))
			r.Assign([]ingest.SourcePosition{{Topic: "orders.delay", TopicID: found[0].TopicID, Next: 0, Epoch: -1, Round: r.round}})
			r.read(1)
		}
		r.Assign(nil)
		kafka.produce(delayed("unread"))
		r.pollNothing()
	}, kfake.SeedTopics(1, "orders.delay"))
}

func TestOffsetOutOfRangeWaitsForAnotherPositionWithoutAHotLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"), delayed("1"), delayed("2"))
		requests := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Count: -1, Observe: true})
		r := newReader(t, kafka)
		r.next[0] = 7
		r.discover()
		r.pollNothing()
		if n := requests.Hits(); n > 50 {
			t.Errorf("%d requests in five seconds", n)
		}
		r.Assign(nil)
		r.pollNothing()
		r.next[0] = 2
		r.discover()
		if got := r.read(1); got[0].Offset != 2 {
			t.Errorf("read offset %d after the position was moved to 2", got[0].Offset)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

func TestForbiddenTopicDoesNotHoldUpOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		fault := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders.delay", Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		forbidden := delayed("forbidden")
		forbidden.Partition = 1
		kafka.produce(delayed("fine"), forbidden)
		r := newReader(t, kafka)
		r.discover()
		if got := r.read(1); string(got[0].Value) != "fine" {
			t.Errorf("read %q", got[0].Value)
		}
		fault.Remove()
		if got := r.read(1); string(got[0].Value) != "forbidden" {
			t.Errorf("read %q after access was granted", got[0].Value)
		}
	}, kfake.SeedTopics(2, "orders.delay"))
}

func TestClosedSourceEndsPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		r.discover()
		go func() {
			pass(time.Second)
			r.Close()
		}()
		if _, err := r.Poll(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("Poll = %v, want errClosed", err)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// Fetches may wait for long when nothing comes, and a partition that is added does not wait for them.
func TestAddedPartitionDoesNotWaitForIdleFetches(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		found, _ := r.look()
		first := ingest.SourcePosition{Topic: "orders.delay", TopicID: found[0].TopicID, Epoch: -1}
		second := first
		second.Partition = 1
		r.Assign([]ingest.SourcePosition{first})
		r.pollNothing()
		fetches := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Count: -1, Observe: true})
		for range 12 { // a minute
			r.pollNothing()
		}
		if n := fetches.Hits(); n > int(time.Minute/defaultFetchMaxWait)+1 {
			t.Errorf("%d fetches in an idle minute", n)
		}
		record := delayed("new")
		record.Partition = 1
		kafka.produce(record)
		r.Assign([]ingest.SourcePosition{first, second})
		start := time.Now()
		r.read(1)
		if took := time.Since(start); took > 2*joinWithin {
			t.Errorf("the partition was read after %v", took)
		}
	}, kfake.SeedTopics(2, "orders.delay"))
}
