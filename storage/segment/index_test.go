package segment

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"
)

// written returns a segment with the entries, whose seqs count up from 1.
func written(t *testing.T, entries []Entry) *Segment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1.seg")
	w, err := Create(path, 1, uint64(len(entries)))
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
	if err := s.Read(refs, places, found, cache); err != nil {
		t.Fatal(err)
	}
	for i, e := range found {
		if e.Ref() != refs[i] {
			t.Fatalf("read %v, want %v", e.Ref(), refs[i])
		}
	}
	return found
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
	const messages = 3 * mostIndexed / indexedSize / 2
	s, refs := forManyTargets(t, 1, messages, 1)
	var cache IndexCache
	for _, wanted := range refs {
		readRefs(t, s, wanted, &cache)
	}
	bytes := 0
	for _, index := range cache.indexes {
		bytes += index.bytes
	}
	if bytes != cache.bytes || bytes > mostIndexed || len(cache.oldest) != cache.Len() {
		t.Errorf("%d bytes of %d chunks, counted as %d of %d", bytes, cache.Len(), cache.bytes, len(cache.oldest))
	}
	if bytes < mostIndexed/2 {
		t.Errorf("only %d bytes were kept", bytes)
	}
}

// An index takes memory for its chunk, its entries and the names in it, however few or long they are.
func TestChunkIndex_countsItsMemory(t *testing.T) {
	if size := unsafe.Sizeof(indexedEntry{}); size != indexedSize {
		t.Errorf("an entry takes %d bytes, %d are counted", size, indexedSize)
	}
	for _, c := range []struct{ targets, each, name int }{{1, 1, 1}, {1, 100, 249}, {100, 1, 249}} {
		var b chunkBuilder
		for i := range c.targets * c.each {
			b.add(&Entry{Due: int64(i), Seq: uint64(i + 1), Target: fmt.Sprintf("%0*d", c.name, i%c.targets)})
		}
		key, value := b.finish(0, nil)
		index, err := indexChunk(key, value)
		if err != nil {
			t.Fatal(err)
		}
		least := c.targets*c.name + c.targets*c.each*indexedSize
		if over := index.bytes - least; over != indexSize {
			t.Errorf("%+v: %d bytes, %d above its entries and names", c, index.bytes, over)
		}
	}
}
