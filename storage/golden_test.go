package storage

import (
	"reflect"
	"testing"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/internal/golden"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/carillonmq/carillon/storage/segment"
)

func goldenContents() contents {
	v := newValues()
	v.clusterID = [16]byte{1, 2, 3}
	v.mode, v.time, v.nextSeq, v.surveyed = "at-least-once", 1_700_000_000_000, 300, true
	v.claim = Claim{Through: 99, Mark: Ref{Due: 98, Seq: 7}, Fresh: Ref{Due: 100, Seq: 8}}
	v.holds.set(Hold{Target: "orders", Through: -3, Mark: Ref{Due: -4, Seq: 5}})
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

func goldenRecord() segment.Record {
	return segment.Record{
		Info: segment.Info{First: 1, Last: 300, Count: 250, Chunks: 4, Bodies: 70_000, Min: Ref{Due: -1, Seq: 4}, Max: Ref{Due: 1 << 50, Seq: 3}},
		Size: 200_000, Branches: []uint64{3, 77}, CRC: 0xdeadbeef,
	}
}

func TestGolden_streamHeader(t *testing.T) {
	c := goldenContents()
	h := streamHeader{meta: c.meta, state: c.state, alive: codec.Record{Version: 1, Payload: []byte{1}}, records: []segment.Record{goldenRecord()}}
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
	if again, err := decodeValues(state); err != nil || !reflect.DeepEqual(encodeValues(&again), c.state) {
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
	h := streamHeader{meta: c.meta, state: c.state, alive: codec.Record{Version: 2, Payload: []byte{100, 5}}, records: []segment.Record{goldenRecord(), goldenRecord()}}
	got, err := decodeStreamHeader(golden.Compare(t, "stream_header_v2", h.encode(c.level()))[streamPrefix:])
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, want %+v (error %v)", got, h, err)
	}
}

// What LevelThree writes otherwise than LevelTwo.
func TestGolden_levelThree(t *testing.T) {
	c := goldenContents()
	v, err := decodeValues(c.state)
	if err != nil {
		t.Fatal(err)
	}
	v.level, v.idsOpen = LevelThree, true
	v.topics.set(Hold{Target: "orders.delay", Through: -3, Mark: Ref{Due: -4, Seq: 5}})
	v.pauses = v.pauses.With(pause.Pause{Kind: pause.Topic, Name: "orders.delay", Who: "ann", Why: "stock taking", Since: 1_700_000_000_000}).
		With(pause.Pause{Kind: pause.Target, Name: "orders", Since: -1})
	c.state = encodeValues(&v)
	if c.level() != LevelThree {
		t.Fatalf("contents of level %d", c.level())
	}
	state, err := codec.Open("state", newestState, golden.Compare(t, "manifest_state_v3", codec.Seal(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeValues(state)
	if err != nil || !reflect.DeepEqual(encodeValues(&again), c.state) || !again.pauses.Has(pause.Target, "orders") || again.topics.len() != 1 {
		t.Errorf("values %+v, want %+v (error %v)", again, v, err)
	}
}

// What LevelThree writes while some messages have lost their ids.
func TestGolden_lostIDs(t *testing.T) {
	c := goldenContents()
	v, err := decodeValues(c.state)
	if err != nil {
		t.Fatal(err)
	}
	v.level, v.idsOpen = LevelThree, true
	v.lost.AddRange(7, 9)
	v.lost.Add(1 << 33)
	c.state = encodeValues(&v)
	state, err := codec.Open("state", newestState, golden.Compare(t, "manifest_state_v3_lost", codec.Seal(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeValues(state)
	if err != nil || !reflect.DeepEqual(encodeValues(&again), c.state) || !again.idsOpen || again.lost.Count() != 4 || !again.lost.Contains(1<<33) {
		t.Errorf("values %+v, want %+v (error %v)", again, v, err)
	}
}

// What LevelFour writes otherwise than LevelThree.
func TestGolden_levelFour(t *testing.T) {
	c := goldenContents()
	v, err := decodeValues(c.state)
	if err != nil {
		t.Fatal(err)
	}
	v.level, v.idsOpen = LevelFour, true
	letters := replayed.Partition{TopicID: [16]byte{7}, Number: 2}
	for _, offset := range []int64{3, 4, 1 << 40} {
		v.replayed.Add(letters, offset, 0)
	}
	v.bulks, _ = v.bulks.Start(bulk.Operation{What: `{"verb":"cancel"}`, Who: "ann", UpperSeq: 299, Started: 1_700_000_000_000})
	v.bulks, _ = v.bulks.Start(bulk.Operation{What: "other", UpperSeq: 1 << 40, Started: -1})
	v.bulks = v.bulks.With(bulk.Operation{ID: 1, What: `{"verb":"cancel"}`, Who: "ann", UpperSeq: 299, Started: 1_700_000_000_000, Ended: 1_700_000_000_009,
		State: bulk.Finished, Cursor: "here", Counts: bulk.Counts{Done: 200, TooLate: 3, NotFound: 2, Failed: 1}, Problem: "no such target"})
	c.state = encodeValues(&v)
	if c.level() != LevelFour {
		t.Fatalf("contents of level %d", c.level())
	}
	state, err := codec.Open("state", newestState, golden.Compare(t, "manifest_state_v4", codec.Seal(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeValues(state)
	if err != nil || !reflect.DeepEqual(encodeValues(&again), c.state) || !again.replayed.Has(letters, 4) || again.replayed.Has(letters, 5) ||
		!reflect.DeepEqual(again.bulks.All(), v.bulks.All()) {
		t.Errorf("values %+v, want %+v (error %v)", again, v, err)
	}
}

// What LevelThree sends otherwise than LevelTwo.
func TestGolden_streamHeaderOfLevelThree(t *testing.T) {
	c := goldenContents()
	h := streamHeader{
		meta: c.meta, state: c.state, alive: codec.Record{Version: 2, Payload: []byte{100, 5}},
		outcomes: outcomes.NewSet().Freeze().Head(), ended: 4321, records: []segment.Record{goldenRecord()},
	}
	got, err := decodeStreamHeader(golden.Compare(t, "stream_header_v3", h.encode(LevelThree))[streamPrefix:])
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, want %+v (error %v)", got, h, err)
	}
}
