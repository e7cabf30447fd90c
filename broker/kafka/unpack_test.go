package kafka

import (
	"bytes"
	"compress/gzip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/broker/message"
)

// A gauge notes how much waits at most while more is unpacked.
type gauge struct {
	kgo.Decompressor
	of   *unpacker
	most atomic.Int64
}

func (g *gauge) Decompress(packed []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	g.most.Store(max(g.most.Load(), int64(g.of.waits())))
	return g.Decompressor.Decompress(packed, codec)
}

// Each batch is a few KB as Kafka sends it, so one fetch has all of them.
func TestUnpacker_boundsWhatWaitsToBePolled(t *testing.T) {
	const bombs, size, brokers = 18, 30 << 20, 3
	inBubble(t, func(t *testing.T, kafka bubble) {
		client := kafka.client(kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(100<<20))
		for i := range bombs {
			bomb := delayed("")
			bomb.Value, bomb.Partition = make([]byte, size), int32(i%4)
			if err := client.ProduceSync(t.Context(), bomb).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		r := newReader(t, kafka)
		g := &gauge{Decompressor: r.unpacker.Decompressor, of: r.unpacker}
		r.unpacker.Decompressor = g
		r.discover()
		r.read(bombs)
		if most := g.most.Load(); most < enoughUnpacked/2 || most > enoughUnpacked+brokers*(size+1<<10) {
			t.Errorf("%d MB waited at most, want %d or some more", most>>20, enoughUnpacked>>20)
		}
		if failures := r.Failures(); len(failures) > 0 {
			t.Errorf("failures %+v: what is fetched again is none", failures)
		}
	}, kfake.SeedTopics(4, "orders.delay"), kfake.Ports(9092, 9093, 9094))
}

// An empty header is two bytes, and eighty in memory.
func TestUnpacker_refusesABatchOfMillionsOfHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		client := kafka.client(kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(100<<20))
		bomb := delayed("")
		bomb.Headers = append(bomb.Headers, make([]kgo.RecordHeader, mostBatch/headerCost)...)
		for _, r := range []*kgo.Record{bomb, delayed("after")} {
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		r := newReader(t, kafka)
		r.discover()
		got := r.read(2)
		if p := got[0].Problem; p == nil || p.Code != message.CodeTooLarge || !strings.Contains(p.Message, "header takes in memory") || len(got[0].Headers) > 0 {
			t.Errorf("in place of the batch: %d headers, problem %v", len(got[0].Headers), p)
		}
		if string(got[1].Value) != "after" {
			t.Errorf("%q came next", got[1].Value)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// A broker that leads nothing any more is asked for nothing. What it had sent must not keep others from being unpacked.
func TestUnpacker_forgetsWhatWasPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := newUnpacker()
		if err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		const third = enoughUnpacked / 3
		if _, err := w.Write(make([]byte, third)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		const gzipped = 1
		unpack := func() error {
			_, err := u.Decompress(packed.Bytes(), gzipped)
			return err
		}
		for _, length := range []int{packed.Len(), 0} { // as it is told of a batch, and of one of the oldest format
			for range 3 {
				if err := unpack(); err != nil {
					t.Fatal(err)
				}
				u.OnFetchBatchRead(kgo.BrokerMetadata{NodeID: 1}, "orders.delay", 0, kgo.FetchBatchMetrics{CompressedBytes: length, CompressionType: gzipped})
			}
			u.polled(client)
			u.OnBrokerWrite(kgo.BrokerMetadata{NodeID: 2}, int16(kmsg.Fetch), 0, 0, 0, nil)
			u.OnBrokerWrite(kgo.BrokerMetadata{NodeID: 1}, int16(kmsg.Metadata), 0, 0, 0, nil)
			if err := unpack(); err != errEnoughUnpacked {
				t.Errorf("unpacked beside what may wait: %v", err)
			}
			if length > 0 {
				time.Sleep(betweenBatches)
				u.polled(client)
			} else {
				u.OnBrokerWrite(kgo.BrokerMetadata{NodeID: 1}, int16(kmsg.Fetch), 0, 0, 0, nil)
			}
			if waits := u.waits(); waits != 0 {
				t.Errorf("%d bytes wait that were polled", waits)
			}
		}
	})
}

func TestCostOf_countsRecordsAndHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []byte
		cost := 0
		text := rapid.SliceOfN(rapid.Byte(), 0, 300)
		for range rapid.IntRange(0, 5).Draw(t, "records") {
			r := kmsg.NewRecord()
			r.TimestampDelta64 = rapid.Int64().Draw(t, "time")
			r.OffsetDelta = rapid.Int32().Draw(t, "offset")
			if rapid.Bool().Draw(t, "keyed") {
				r.Key = text.Draw(t, "key")
			}
			if rapid.Bool().Draw(t, "valued") {
				r.Value = text.Draw(t, "value")
			}
			for range rapid.IntRange(0, 3).Draw(t, "headers") {
				r.Headers = append(r.Headers, kmsg.Header{Key: string(text.Draw(t, "name")), Value: text.Draw(t, "text")})
			}
			r.Length = int32(len(r.AppendTo(nil))) - 1 // without the length itself, which was one byte
			records = r.AppendTo(records)
			cost += recordCost + headerCost*len(r.Headers)
		}
		if got := costOf(records); got != cost+len(records) {
			t.Errorf("%d, want %d", got, cost+len(records))
		}
		if cut := records[:rapid.IntRange(0, len(records)).Draw(t, "cut")]; costOf(cut) < len(cut) || costOf(cut) > cost+len(records) {
			t.Errorf("of the first %d bytes of %d: %d, of all %d", len(cut), len(records), costOf(cut), cost+len(records))
		}
		costOf(text.Draw(t, "garbage"))
	})
}
