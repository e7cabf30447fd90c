package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/carillonmq/carillon/storage/codec"
)

// written returns a Plain segment with the entries, whose seqs count up from 1.
func written(t *testing.T, entries []Entry) *Segment {
	t.Helper()
	return writtenAs(t, Plain, entries)
}

func writtenAs(t *testing.T, form Form, entries []Entry) *Segment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1.seg")
	w, err := Create(path, form, 1, uint64(len(entries)), uint64(len(entries)))
	if err != nil {
		t.Fatal(err)
	}
	inOrder := slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return a.Ref().Compare(b.Ref()) })
	for i := range inOrder {
		if err := w.Add(&inOrder[i]); err != nil {
			t.Fatal(err)
		}
	}
	record, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, 1, record, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// forManyTargets returns a segment with messages for many targets, mixed, and their refs by target.
func forManyTargets(t *testing.T, targets, each, size int) (*Segment, map[string][]Ref) {
	t.Helper()
	entries, refs := make([]Entry, targets*each), make(map[string][]Ref)
	for i := range entries {
		entries[i] = Entry{Due: int64(i), Seq: uint64(i + 1), Target: fmt.Sprint("target-", i%targets), Body: make([]byte, size)}
		refs[entries[i].Target] = append(refs[entries[i].Target], entries[i].Ref())
	}
	return written(t, entries), refs
}

// readRefs reads all of refs, each of which must be found.
func readRefs(t *testing.T, s *Segment, refs []Ref, cache *IndexCache) []Entry {
	t.Helper()
	places, found := make([]int, len(refs)), make([]Entry, len(refs))
	for i := range places {
		places[i] = i
	}
	if _, err := s.Read(refs, places, found, math.MaxInt, cache); err != nil {
		t.Fatal(err)
	}
	for i, e := range found {
		if e.Ref() != refs[i] {
			t.Fatalf("read %v, want %v", e.Ref(), refs[i])
		}
	}
	return found
}

// What is not there takes no room from what is: its neighbour in the chunk is not read.
func TestRead_countsTheBodiesThatItReads(t *testing.T) {
	s := written(t, []Entry{{Due: 1, Seq: 1, Target: "t", Body: make([]byte, 100)}, {Due: 3, Seq: 2, Target: "t", Body: make([]byte, 100)}})
	found := make([]Entry, 2)
	been, err := s.Read([]Ref{{Due: 2, Seq: 2}, {Due: 3, Seq: 2}}, []int{0, 1}, found, 100, new(IndexCache))
	if err != nil || been != 2 || found[0].Seq != 0 || found[1].Seq != 2 {
		t.Errorf("been to %d places, read %v and %v, %v; want the second one alone", been, found[0].Ref(), found[1].Ref(), err)
	}
}

// Messages for many targets lie in the same chunks and are read target by target: each chunk is
// decoded once.
func TestRead_decodesAChunkOnceForAllTargets(t *testing.T) {
	const targets, each = 50, 60
	s, refs := forManyTargets(t, targets, each, 100)
	var cache IndexCache
	var decoded map[chunkPlace]*chunkIndex
	for target, wanted := range refs {
		for _, e := range readRefs(t, s, wanted, &cache) {
			if e.Target != target || len(e.Body) != 100 {
				t.Fatalf("read %v of %s, %d bytes, want one of %s", e.Ref(), e.Target, len(e.Body), target)
			}
		}
		if decoded == nil {
			decoded = maps.Clone(cache.indexes)
		}
		for place, index := range cache.indexes {
			if decoded[place] != index {
				t.Fatalf("chunk %v was decoded again", place.first)
			}
		}
	}
	if chunks := int(s.Info.Chunks); chunks < 2 || len(decoded) != chunks {
		t.Errorf("%d chunks were decoded of %d", len(decoded), chunks)
	}
}

// Whatever is read, what is kept of it is bounded, and the bound counts what is kept.
func TestIndexCache_isBounded(t *testing.T) {
	var cache IndexCache
	for i := range 3 * mostIndexed / indexSize {
		cache.keep(chunkPlace{1, Ref{Seq: uint64(i)}}, &chunkIndex{marks: make([]mark, i%10), places: make([]uint32, i%7)})
	}
	bytes := 0
	for _, index := range cache.indexes {
		bytes += index.bytes()
	}
	if bytes != cache.bytes || bytes > mostIndexed || len(cache.oldest) != cache.Len() {
		t.Errorf("%d bytes of %d chunks, counted as %d of %d", bytes, cache.Len(), cache.bytes, len(cache.oldest))
	}
	if bytes < mostIndexed/2 {
		t.Errorf("only %d bytes were kept", bytes)
	}
}

// The backlog of 400,000 messages for a thousand targets fits, in whatever order they are read.
func TestIndexCache_holdsALargeBacklog(t *testing.T) {
	const targets, chunks = 1000, 700
	var b chunkBuilder
	for i := 0; !b.full(); i++ {
		b.add(&Entry{Due: int64(i), Seq: uint64(i + 1), Target: fmt.Sprintf("customer-%08d.replies", i%targets), Body: make([]byte, 100)})
	}
	key, value := b.finish(0, nil)
	index, err := indexChunk(Plain, key, value)
	if err != nil {
		t.Fatal(err)
	}
	if all := chunks * index.bytes(); index.count*chunks < 400_000 || all > mostIndexed {
		t.Errorf("%d entries in %d chunks take %d bytes", index.count*chunks, chunks, all)
	}
}

// An index takes memory for its chunk, its marks and where names lie, however few or long they are.
func TestChunkIndex_countsItsMemory(t *testing.T) {
	if size := unsafe.Sizeof(mark{}); size != markSize {
		t.Errorf("a mark takes %d bytes, %d are counted", size, markSize)
	}
	for _, c := range []struct{ targets, each, most int }{{1, 1, 350}, {1, 100, 900}, {100, 1, 1400}} {
		var b chunkBuilder
		for i := range c.targets * c.each {
			b.add(&Entry{Due: int64(i), Seq: uint64(i + 1), Target: fmt.Sprintf("%0*d", 249, i%c.targets)})
		}
		key, value := b.finish(0, nil)
		index, err := indexChunk(Plain, key, value)
		if err != nil {
			t.Fatal(err)
		}
		if n := index.bytes(); n > c.most || n != indexSize+markSize*cap(index.marks)+labelSize*(cap(index.places)+cap(index.labels)) {
			t.Errorf("%+v: %d bytes", c, n)
		}
	}
}

// A chunk that is damaged after it was indexed is noticed by whoever reads what is damaged, and what is read is
// never wrong.
func TestChunkIndex_noticesDamage(t *testing.T) {
	const entries, targets = 200, 40
	var b chunkBuilder
	for i := range entries {
		b.add(&Entry{Due: int64(i), Seq: uint64(i + 1), Target: fmt.Sprint("target-", i%targets), Body: []byte{1}})
	}
	key, value := b.finish(0, nil)
	index, err := indexChunk(Plain, key, value)
	if err != nil {
		t.Fatal(err)
	}
	// readAll reads every entry and returns how many of them are damaged.
	readAll := func() (damaged int) {
		for i := range entries {
			var e chunkEntry
			switch ok, err := index.find(Ref{Due: int64(i), Seq: uint64(i + 1)}, value, &e); {
			case errors.Is(err, codec.ErrCorrupt):
				damaged++
			case err != nil || !ok || e.Target != fmt.Sprint("target-", i%targets) || len(e.Body) != 1 || e.verify() != nil:
				t.Fatalf("entry %d: %+v, %v, %v", i, e, ok, err)
			}
		}
		return damaged
	}
	if damaged := readAll(); damaged > 0 {
		t.Fatalf("%d entries are damaged in a chunk that is whole", damaged)
	}
	for i := range entries {
		if ok, err := index.find(Ref{Due: int64(i), Seq: uint64(i)}, value, &chunkEntry{}); ok || err != nil {
			t.Fatalf("an entry that is not there: %v, %v", ok, err)
		}
	}
	labels := int(index.places[0] >> placeShift)
	for at := range index.end {
		value[at]++
		switch damaged := readAll(); {
		case at < 4 && index.describes(value):
			t.Errorf("byte %d is damaged, and the chunk is taken for the one that was indexed", at)
		case at >= labels && damaged == 0:
			t.Errorf("byte %d is damaged, and nothing is noticed", at)
		case at >= int(index.marks[0].entry) && damaged > markEvery:
			t.Errorf("byte %d is damaged, and %d entries with it", at, damaged)
		}
		value[at]--
	}
	if !index.describes(value) || readAll() > 0 {
		t.Error("the chunk is whole")
	}
}
