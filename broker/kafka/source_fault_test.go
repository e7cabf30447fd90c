package kafka

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/message"
)

func TestPausedSourceHoldsBoundedMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		const records, size = 36, 900_000
		incompressible := rand.NewChaCha8([32]byte{})
		for i := range records {
			r := delayed("")
			r.Partition, r.Value = int32(i%3), make([]byte, size)
			incompressible.Read(r.Value)
			kafka.produce(r)
		}
		r := newReader(t, kafka)
		r.discover()
		first := r.read(1)
		pass(time.Minute)
		if held := r.client.BufferedFetchBytes(); held == 0 || held > fetchMaxBytes+fetchMaxPartitionBytes {
			t.Errorf("%d bytes are held of %d", held, records*size)
		}
		if rest := r.read(records - len(first)); len(rest) != records-len(first) {
			t.Errorf("%d records after the pause, want %d", len(rest), records-len(first))
		}
	}, kfake.SeedTopics(3, "orders.delay"))
}

// A broker that lags behind can give the client the id of a topic that is gone.
func TestStaleTopicIDIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"))
		r := newReader(t, kafka)
		r.discover()
		r.read(1)
		faults := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders.delay", Err: kerr.UnknownTopicID, Count: 5})
		kafka.produce(delayed("1"))
		if got := r.read(1); string(got[0].Value) != "1" {
			t.Errorf("read %q", got[0].Value)
		}
		if faults.Hits() != 5 {
			t.Errorf("%d faults, want 5", faults.Hits())
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// Until the discovery is certain that a topic was created anew, nothing is read of the new one under
// the old id: neither records nor, again and again, that the old offset is not there.
func TestRecreatedTopicIsLeftAloneUntilItIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("old 1"), delayed("old 2"), delayed("old 3"))
		r := newReader(t, kafka)
		r.next[0] = 3
		r.discover()
		r.pollNothing()
		admin := kafka.admin()
		if _, err := admin.DeleteTopic(t.Context(), "orders.delay"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders.delay"); err != nil {
			t.Fatal(err)
		}
		kafka.produce(delayed("new"))
		requests := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Count: -1, Observe: true})
		r.pollNothing()
		if n := requests.Hits(); n > 50 {
			t.Errorf("%d requests in five seconds", n)
		}
		clear(r.next)
		r.discover()
		if got := r.read(1); string(got[0].Value) != "new" {
			t.Errorf("read %q", got[0].Value)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

func TestTransientOutOfRangeGoesOnWhereItWas(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"))
		r := newReader(t, kafka)
		r.discover()
		r.read(1)
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders.delay", Err: kerr.OffsetOutOfRange, Count: 1})
		pass(time.Second)
		kafka.produce(delayed("1"))
		if got := r.read(1); got[0].Offset != 1 {
			t.Errorf("read %+v", got)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// Whether records that were read have been replaced is for the discovery to say: reading on would skip those
// in their place, going back would read some twice if it is not true.
func TestReplacedRecordsAreNeitherReadNorSkippedOnOneWord(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"), delayed("1"))
		if err := kafka.MoveTopicPartition("orders.delay", 0, 0); err != nil { // a new leader epoch
			t.Fatal(err)
		}
		kafka.produce(delayed("2"))
		lies := 0
		kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(request kmsg.Request) (kmsg.Response, error, bool) {
			kafka.KeepControl()
			if lies++; lies > 3 {
				return nil, nil, false
			}
			response := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.LeaderEpoch, p.EndOffset = 0, 1
			response.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: "orders.delay",
				Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{p}}}
			return response, nil, true
		})
		r := newReader(t, kafka)
		found, _ := r.look()
		r.next[0] = 2
		r.Assign([]ingest.SourcePosition{{Topic: "orders.delay", TopicID: found[0].TopicID, Next: 2, Epoch: 0}})
		if got := r.read(1); got[0].Offset != 2 || lies < 4 {
			t.Errorf("read offset %d, want 2, after %d answers", got[0].Offset, lies)
		}
		p := r.find("orders.delay", found[0].TopicID, 0)
		if batch, err := p.take([]*kgo.Record{{Offset: 1}, {Offset: 3}}); !errors.Is(err, errReplaced) || len(batch.Arrivals) != 0 {
			t.Errorf("the client has gone back: %+v, %v", batch, err)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// One poll may bring both the news that records were replaced and records from behind that place, in either order. What
// stands in place of those that were read is to be read first, wherever the discovery finds that it begins.
func TestRecordsFromBehindReplacedOnesAreNotTakenWithTheNews(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"), delayed("1"))
		behind := kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: "orders.delay", Partitions: []kgo.FetchPartition{
			{Partition: 0, Records: []*kgo.Record{{Offset: 2, LeaderEpoch: 1}}}}}}}
		news := kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: "orders.delay", Partitions: []kgo.FetchPartition{
			{Partition: 0, Err: &kgo.ErrDataLoss{Topic: "orders.delay", ConsumedTo: 2, ResetTo: 1}}}}}}
		for _, poll := range []kgo.Fetches{{news, behind}, {behind, news}} {
			r := newReader(t, kafka)
			found := r.discover()
			r.read(2)
			if batches := r.accept(poll); len(batches) > 0 {
				t.Errorf("%+v was taken", batches)
			}
			if p := r.find("orders.delay", found[0].TopicID, 0); p.next != 2 || !p.stalled() || !errors.Is(p.failure, errReplaced) {
				t.Errorf("reading goes on at %d, stalled %t by %v, want to wait at 2", p.next, p.stalled(), p.failure)
			}
			if failures := r.Failures(); len(failures) != 1 {
				t.Errorf("failures %+v, want the partition's", failures)
			}
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// Zeros compress a thousandfold, so a batch that Kafka takes can be larger than our memory.
func TestBatchThatIsTooLargeToReadBecomesADeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		client := kafka.client(kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(100<<20))
		bomb := delayed("")
		bomb.Value = make([]byte, mostUnpacked)
		for _, r := range []*kgo.Record{delayed("before"), bomb, delayed("after")} {
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		r := newReader(t, kafka)
		r.discover()
		got := r.read(3)
		if string(got[0].Value) != "before" || string(got[2].Value) != "after" || got[2].Offset != 2 {
			t.Errorf("read %q and %q at offset %d", got[0].Value, got[2].Value, got[2].Offset)
		}
		want := "records of offset 1 to 1 were sent as one batch of more than 67108864 bytes, uncompressed, or more than 268435456 with what each record and header takes in memory, and are not read: send smaller batches"
		if p := got[1].Problem; p == nil || p.Code != message.CodeTooLarge || p.Message != want || got[1].Offset != 1 {
			t.Errorf("in place of the batch: offset %d, problem %v", got[1].Offset, p)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}
