package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Zeros compress ten thousandfold, and an empty header is two bytes that take forty when they are read. So what
// bounds a fetch as Kafka sends it bounds nothing of what it becomes.
const (
	// mostUnpacked bounds a batch without its compression, in bytes.
	mostUnpacked = 64 << 20
	// mostBatch bounds what a batch takes in memory, with its records and headers.
	mostBatch = 4 * mostUnpacked
	// enoughUnpacked is how much of what was unpacked may wait to be polled, of all Kafka brokers together,
	// before no other batch is unpacked.
	enoughUnpacked = 3 * mostUnpacked
	// What is made of each record and header, by the Kafka client and of what it gives.
	recordCost, headerCost = 256, 80
)

// An unpacker decompresses what a Kafka client fetches, and refuses what would take too much memory: a batch that is
// too large by itself for good, and any other while enough waits to be polled.
//
// What waits is counted for each Kafka broker, since the client asks one for more only when all that it has of it was
// polled, or dropped. Which broker a batch is of is told in the next moment, by the goroutine that has unpacked it:
//
//	Decompress --> unnamed --OnFetchBatchRead--> waiting of the broker --OnBrokerWrite of its next fetch--> 0
//	                                                                   --polled, where there is none------> 0
//
// Each broker may be at one batch at the moment at which the last room is taken: those are beyond the bound.
type unpacker struct {
	kgo.Decompressor // the client's own, which mostUnpacked bounds

	mu      sync.Mutex
	total   int // in unnamed and waiting
	unnamed []unpacked
	waiting map[int32]fetched // by broker
}

// unpacked is a batch that was decompressed and is not told to be of a broker yet.
type unpacked struct{ compressed, cost int }

// fetched is what a broker has sent and the client unpacked.
type fetched struct {
	cost int
	last time.Time // when the last batch was told
}

const (
	// betweenBatches is more than the client takes from one batch of a fetch to the next.
	betweenBatches = time.Second
	// goneAfter is how long what a broker has sent may wait at most, however much others have sent that does.
	goneAfter = time.Minute
)

var (
	_ kgo.HookFetchBatchRead = (*unpacker)(nil)
	_ kgo.HookBrokerWrite    = (*unpacker)(nil)
)

// newUnpacker returns what a client is to be made with: kgo.WithDecompressor and kgo.WithHooks.
func newUnpacker() (*unpacker, error) {
	lender, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(mostUnpacked)) // connects to nothing
	if err != nil {
		return nil, fmt.Errorf("create decompressor: %w", err)
	}
	defer lender.Close()
	bounded, ok := lender.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, errNoDecompressor
	}
	return &unpacker{Decompressor: bounded, waiting: make(map[int32]fetched)}, nil
}

// Decompress is the Kafka client's call for each compressed batch.
func (u *unpacker) Decompress(packed []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if u.waits() >= enoughUnpacked {
		return nil, errEnoughUnpacked
	}
	records, err := u.Decompressor.Decompress(packed, codec)
	if err != nil {
		return nil, err
	}
	cost := costOf(records)
	if cost > mostBatch {
		return nil, kgo.ErrMaxDecompress
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total += cost
	u.unnamed = append(u.unnamed, unpacked{len(packed), cost})
	return records, nil
}

func (u *unpacker) waits() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total
}

// OnFetchBatchRead is the Kafka client's call after each batch, unpacked or refused. One of the oldest format is told
// with another length than it had for Decompress: it takes the place of any other, so none stays without a broker.
func (u *unpacker) OnFetchBatchRead(broker kgo.BrokerMetadata, _ string, _ int32, batch kgo.FetchBatchMetrics) {
	if batch.CompressionType == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.unnamed) == 0 {
		return
	}
	i := max(slices.IndexFunc(u.unnamed, func(b unpacked) bool { return b.compressed == batch.CompressedBytes }), 0)
	u.waiting[broker.NodeID] = fetched{u.waiting[broker.NodeID].cost + u.unnamed[i].cost, time.Now()}
	u.unnamed = slices.Delete(u.unnamed, i, i+1)
}

// OnBrokerWrite is the Kafka client's call after each request.
func (u *unpacker) OnBrokerWrite(broker kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key != kmsg.Fetch.Int16() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(broker.NodeID)
}

func (u *unpacker) drop(broker int32) {
	u.total -= u.waiting[broker].cost
	delete(u.waiting, broker)
}

// polled is to be called after each poll of the client. A broker that leads nothing any more is not asked again: what
// it has sent waits no more when nothing does, unless the client may still be at it.
func (u *unpacker) polled(client *kgo.Client) {
	after := betweenBatches
	if client.BufferedFetchRecords() > 0 {
		after = goneAfter
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for broker, f := range u.waiting {
		if time.Since(f.last) >= after {
			u.drop(broker)
		}
	}
}

// costOf returns about what the records of a batch take in memory, in bytes. Of what is no record
// the Kafka client reads none.
//
//	| length varint | attributes 1 | time varint | offset varint | key, value: length varint, bytes | headers varint | ...
func costOf(records []byte) int {
	cost := len(records)
	for len(records) > 0 {
		length, n := binary.Varint(records)
		if n <= 0 || length < 1 || length > int64(len(records)-n) {
			break
		}
		record := records[n+1:][:length-1]
		records = records[n+int(length):]
		cost += recordCost
		var headers int64
		for _, isField := range [...]bool{false, false, true, true, false} {
			value, n := binary.Varint(record)
			if n <= 0 {
				break
			}
			record, headers = record[n:], value
			if isField {
				record = record[min(max(value, 0), int64(len(record))):]
			}
		}
		cost += headerCost * int(min(max(headers, 0), int64(len(record))))
	}
	return cost
}
