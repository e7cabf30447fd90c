package storage

import (
	"reflect"
	"testing"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/internal/golden"
)

func goldenEntries() []Entry {
	return []Entry{
		{Due: -5, Seq: 9, Target: "orders", Body: nil},
		{Due: 1_700_000_000_000, Seq: 2, Target: "", Body: []byte{}},
		{Due: 1_700_000_000_000, Seq: 3, Target: "orders", Body: []byte("hello")},
		{Due: 1<<63 - 1, Seq: 1 << 40, Target: "payments", Body: []byte{0, 255}},
	}
}

func TestGolden_chunk(t *testing.T) {
	var b chunkBuilder
	for _, e := range goldenEntries() {
		b.add(&e)
	}
	key, value := b.finish(7, nil)
	c, err := openChunk(golden.Compare(t, "chunk_key", key), golden.Compare(t, "chunk", value))
	if err != nil {
		t.Fatal(err)
	}
	if c.ordinal != 7 {
		t.Errorf("ordinal %d", c.ordinal)
	}
	for _, want := range goldenEntries() {
		e, ok, err := c.next()
		if err != nil || !ok || !sameEntry(e.Entry, want) || e.verify() != nil {
			t.Errorf("entry %+v, %v, %v, want %+v", e, ok, err, want)
		}
	}
	if _, ok, err := c.next(); ok || err != nil {
		t.Errorf("after the last entry: %v, %v", ok, err)
	}
}

func goldenContents() contents {
	v := newValues()
	v.clusterID = [16]byte{1, 2, 3}
	v.mode, v.time, v.nextSeq, v.surveyed = "at-least-once", 1_700_000_000_000, 300, true
	v.claim = Claim{Through: 99, Mark: Ref{98, 7}, Fresh: Ref{100, 8}}
	v.holds.set(Hold{Target: "orders", Through: -3, Mark: Ref{-4, 5}})
	v.positions[partitionKey{[16]byte{9}, 2}] = Position{Topic: "orders.delay", TopicID: [16]byte{9}, Partition: 2, Next: -1, Epoch: -1}
	set := alive.NewSet()
	set.AddRange(5, 199)
	set.Add(1 << 33)
	return contents{
		number: 4, generation: 2, state: encodeValues(&v), alive: set,
		meta: SnapshotMeta{Index: 1000, Term: 3, Configuration: []byte{}, ConfigurationIndex: 1},
	}
}

func TestGolden_manifest(t *testing.T) {
	c := goldenContents()
	var got contents
	head, err := codec.Open("head", newestHead, golden.Compare(t, "manifest_head", codec.Seal(c.encodeHead())))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.decodeHead(head); err != nil || !reflect.DeepEqual(got.meta, c.meta) || got.number != 4 || got.generation != 2 {
		t.Errorf("head %+v, error %v", got, err)
	}
	state, err := codec.Open("state", newestState, golden.Compare(t, "manifest_state", codec.Seal(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	v, err := decodeValues(state)
	if err != nil || !reflect.DeepEqual(encodeValues(&v), c.state) {
		t.Errorf("values %+v, error %v", v, err)
	}
}

func goldenRecord() segmentRecord {
	return segmentRecord{
		info: segmentInfo{first: 1, last: 300, count: 250, chunks: 4, bodies: 70_000, min: Ref{-1, 4}, max: Ref{1 << 50, 3}},
		size: 200_000, branches: []uint64{3, 77}, crc: 0xdeadbeef,
	}
}

func TestGolden_segmentRecord(t *testing.T) {
	want := goldenRecord()
	sealed, err := codec.Open("segment record", newestSegmentRecord, golden.Compare(t, "segment_record", codec.Seal(want.encode())))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSegmentRecord(sealed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v (error %v)", got, want, err)
	}
}

func TestGolden_streamHeader(t *testing.T) {
	c := goldenContents()
	h := streamHeader{meta: c.meta, state: c.state, alive: codec.Record{Version: 1, Payload: []byte{1}}, records: []segmentRecord{goldenRecord()}}
	got, err := decodeStreamHeader(golden.Compare(t, "stream_header", h.encode(c.level()))[streamPrefix:])
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, want %+v (error %v)", got, h, err)
	}
}

// What LevelTwo writes otherwise than LevelOne, whose forms are above.
func TestGolden_levelTwo(t *testing.T) {
	c := goldenContents()
	v, err := decodeValues(c.state)
	if err != nil {
		t.Fatal(err)
	}
	v.level = LevelTwo
	c.state = encodeValues(&v)
	if c.level() != LevelTwo {
		t.Fatalf("contents of level %d", c.level())
	}
	state, err := codec.Open("state", newestState, golden.Compare(t, "manifest_state_v2", codec.Seal(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := decodeValues(state); err != nil || !reflect.DeepEqual(again, v) {
		t.Errorf("values %+v, want %+v (error %v)", again, v, err)
	}
	c.stored = alive.File{ID: 9, Base: 1000, Size: 1234, Flushed: 5 << 20, Count: 196, Next: 300}
	head, err := codec.Open("head", newestHead, golden.Compare(t, "manifest_head_v2", codec.Seal(c.encodeHead())))
	if err != nil {
		t.Fatal(err)
	}
	var named contents
	if err := named.decodeHead(head); err != nil || named.stored != c.stored || !reflect.DeepEqual(named.meta, c.meta) {
		t.Errorf("head %+v, error %v", named, err)
	}
	h := streamHeader{meta: c.meta, state: c.state, alive: codec.Record{Version: 2, Payload: []byte{100, 5}}, records: []segmentRecord{goldenRecord(), goldenRecord()}}
	got, err := decodeStreamHeader(golden.Compare(t, "stream_header_v2", h.encode(c.level()))[streamPrefix:])
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, want %+v (error %v)", got, h, err)
	}
}
