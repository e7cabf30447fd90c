package segment

import (
	"reflect"
	"strings"
	"testing"

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

// goldenNamed are entries of a segment WithIDs, with and without what they may have.
func goldenNamed() []Entry {
	return []Entry{
		{Due: -5, Seq: 9, Target: "orders", Topic: "orders.delay", ID: "invoice-7", Expires: -9, Body: nil},
		{Due: 1_700_000_000_000, Seq: 2, Target: "", Topic: "orders.delay", ID: "x", Body: []byte{}},
		{Due: 1_700_000_000_000, Seq: 3, Target: "orders", Topic: "orders.delay", Expires: 1_700_000_600_000, Body: []byte("hello")},
		{Due: 1_700_000_000_001, Seq: 4, Target: "orders", Topic: "orders.delay", Body: []byte("hello")},
		{Due: 1<<63 - 1, Seq: 1 << 40, Target: "payments", Body: []byte{0, 255}},
	}
}

func TestGolden_chunk(t *testing.T) { goldenChunk(t, Plain, "chunk", goldenEntries()) }

func TestGolden_chunkWithIDs(t *testing.T) { goldenChunk(t, WithIDs, "chunk_v2", goldenNamed()) }

func goldenChunk(t *testing.T, form Form, file string, entries []Entry) {
	b := chunkBuilder{form: form}
	for _, e := range entries {
		b.add(&e)
	}
	key, value := b.finish(7, nil)
	c, err := openChunk(form, golden.Compare(t, strings.Replace(file, "chunk", "chunk_key", 1), key), golden.Compare(t, file, value))
	if err != nil {
		t.Fatal(err)
	}
	if c.ordinal != 7 {
		t.Errorf("ordinal %d", c.ordinal)
	}
	for _, want := range entries {
		var e chunkEntry
		ok, err := c.next(&e)
		if err != nil || !ok || !reflect.DeepEqual(e.Entry, want) || e.verify() != nil {
			t.Errorf("entry %+v, %v, %v, want %+v", e, ok, err, want)
		}
	}
	if ok, err := c.next(&chunkEntry{}); ok || err != nil {
		t.Errorf("after the last entry: %v, %v", ok, err)
	}
}

func TestGolden_segmentRecord(t *testing.T) {
	want := writtenRecord()
	sealed, err := codec.Open("segment record", NewestRecord, golden.Compare(t, "segment_record", codec.Seal(want.Encode())))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRecord(sealed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v (error %v)", got, want, err)
	}
}

func TestGolden_segmentRecordWithIDs(t *testing.T) {
	want := writtenRecord()
	want.Info.Form, want.Info.Rows, want.Info.Foreign, want.Info.RowChunks, want.Info.Filters = WithIDs, 1000, 900, 3, 1
	sealed, err := codec.Open("segment record", NewestRecord, golden.Compare(t, "segment_record_v2", codec.Seal(want.Encode())))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRecord(sealed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v (error %v)", got, want, err)
	}
}

func writtenRecord() Record {
	return Record{
		Info: Info{First: 1, Last: 300, Count: 250, Chunks: 4, Bodies: 70_000, Min: Ref{-1, 4}, Max: Ref{1 << 50, 3}},
		Size: 200_000, Branches: []uint64{3, 77}, CRC: 0xdeadbeef,
	}
}
