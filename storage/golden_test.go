package storage

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares b with a file of hex, 32 bytes a line, and returns the file's
// bytes: what programs before this one have written.
func golden(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		var lines strings.Builder
		for rest := b; len(rest) > 0; rest = rest[min(32, len(rest)):] {
			lines.WriteString(hex.EncodeToString(rest[:min(32, len(rest))]) + "\n")
		}
		if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(want) {
		t.Errorf("%s is written as\n%x, was\n%x", name, b, want)
	}
	return want
}

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
	c, err := openChunk(golden(t, "chunk_key", key), golden(t, "chunk", value))
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
	alive := newAliveSet()
	alive.addRange(SeqRun{5, 199})
	alive.add(1 << 33)
	return contents{
		number: 4, generation: 2, state: encodeValues(&v), alive: alive,
		meta: SnapshotMeta{Index: 1000, Term: 3, Configuration: []byte{}, ConfigurationIndex: 1},
	}
}

func TestGolden_manifest(t *testing.T) {
	c := goldenContents()
	alive, err := encodeAlive(c.alive)
	if err != nil {
		t.Fatal(err)
	}
	var got contents
	head, err := openRecord("head", newestHead, golden(t, "manifest_head", sealRecord(c.encodeHead())))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.decodeHead(head); err != nil || !reflect.DeepEqual(got.meta, c.meta) || got.number != 4 || got.generation != 2 {
		t.Errorf("head %+v, error %v", got, err)
	}
	state, err := openRecord("state", newestState, golden(t, "manifest_state", sealRecord(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	v, err := decodeValues(state)
	if err != nil || !reflect.DeepEqual(encodeValues(&v), c.state) {
		t.Errorf("values %+v, error %v", v, err)
	}
	sealed, err := openRecord("alive-set", newestAlive, golden(t, "manifest_alive", sealRecord(alive)))
	if err != nil {
		t.Fatal(err)
	}
	if set, err := decodeAlive(sealed); err != nil || !reflect.DeepEqual(set, c.alive) {
		t.Errorf("alive-set %v, error %v", set, err)
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
	sealed, err := openRecord("segment record", newestSegmentRecord, golden(t, "segment_record", sealRecord(want.encode())))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSegmentRecord(sealed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v (error %v)", got, want, err)
	}
}

func TestGolden_streamHeader(t *testing.T) {
	c := goldenContents()
	h := streamHeader{meta: c.meta, state: c.state, alive: record{1, []byte{1}}, records: []segmentRecord{goldenRecord()}}
	got, err := decodeStreamHeader(golden(t, "stream_header", h.encode(c.level()))[streamPrefix:])
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
	state, err := openRecord("state", newestState, golden(t, "manifest_state_v2", sealRecord(c.state)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := decodeValues(state); err != nil || !reflect.DeepEqual(again, v) {
		t.Errorf("values %+v, want %+v (error %v)", again, v, err)
	}
	c.stored = aliveFile{id: 9, base: 1000, size: 1234, flushed: 5 << 20, count: 196, next: 300}
	head, err := openRecord("head", newestHead, golden(t, "manifest_head_v2", sealRecord(c.encodeHead())))
	if err != nil {
		t.Fatal(err)
	}
	var named contents
	if err := named.decodeHead(head); err != nil || named.stored != c.stored || !reflect.DeepEqual(named.meta, c.meta) {
		t.Errorf("head %+v, error %v", named, err)
	}
	h := streamHeader{meta: c.meta, state: c.state, alive: record{2, []byte{100, 5}}, records: []segmentRecord{goldenRecord(), goldenRecord()}}
	got, err := decodeStreamHeader(golden(t, "stream_header_v2", h.encode(c.level()))[streamPrefix:])
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, want %+v (error %v)", got, h, err)
	}
}

func TestGolden_aliveFile(t *testing.T) {
	set := goldenContents().alive
	set.addRange(SeqRun{3 * blockSeqs, 4*blockSeqs - 1})
	set.addRange(SeqRun{5 * blockSeqs, 5*blockSeqs + maxLow})
	base := golden(t, "alive_base", encodedBase(set))
	got, _, err := decodeAliveFile(bytes.NewReader(base), int64(len(base)), nil)
	if err != nil || !slices.Equal(encodedBase(got), base) {
		t.Errorf("base of %d seqs is read as %d (error %v)", set.count, got.count, err)
	}
	then, before, after := set.freeze(), uint64(1<<33+1), uint64(1<<33+100)
	set.addRange(SeqRun{before, after - 1})
	set.removeRange(SeqRun{7, 9})
	set.remove(100)
	set.removeRange(SeqRun{1 << 33, 1<<33 + 4})
	change := golden(t, "alive_change", appendPiece(nil, encodeChange(then, set, before, after)))
	got, next, err := decodeAliveFile(bytes.NewReader(base), int64(len(base)), change)
	if err != nil || next != after || !slices.Equal(encodedBase(got), encodedBase(set)) {
		t.Errorf("change to %d of %d seqs is read as one of %d (error %v)", set.count, next, got.count, err)
	}
}
