package storage

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"
)

// forManyTargets returns a store with messages for many targets on disk, mixed, and their refs by target.
func forManyTargets(t *testing.T, targets, each, size int) (*Store, map[string][]Ref) {
	t.Helper()
	s := openStore(t, t.TempDir())
	batch := make([]Entry, targets*each)
	for i := range batch {
		batch[i] = Entry{Due: int64(i), Target: fmt.Sprint("target-", i%targets), Body: make([]byte, size)}
	}
	s.Accept(batch)
	flush(t, s, 1)
	refs := make(map[string][]Ref)
	for i := range batch {
		target := batch[i].Target
		refs[target] = append(refs[target], Ref{Due: int64(i), Seq: uint64(i + 1)})
	}
	return s, refs
}

// Messages for many targets lie in the same chunks and are read target by target: each chunk is
// decoded once.
func TestRead_decodesAChunkOnceForAllTargets(t *testing.T) {
	const targets, each = 50, 60
	s, refs := forManyTargets(t, targets, each, 100)
	var decoded map[chunkPlace]*chunkIndex
	for target, wanted := range refs {
		got, err := s.Read(wanted, nil)
		if err != nil || len(got) != each {
			t.Fatalf("%s: read %d of %d, %v", target, len(got), each, err)
		}
		for i, e := range got {
			if e.Ref() != wanted[i] || e.Target != target || len(e.Body) != 100 {
				t.Fatalf("read %v of %s, %d bytes, want %v of %s", e.Ref(), e.Target, len(e.Body), wanted[i], target)
			}
		}
		if decoded == nil {
			decoded = make(map[chunkPlace]*chunkIndex)
			for place, index := range s.indexes.indexes {
				decoded[place] = index
			}
		}
		for place, index := range s.indexes.indexes {
			if decoded[place] != index {
				t.Fatalf("chunk %v was decoded again", place.first)
			}
		}
	}
	if chunks := int(s.segments[0].info.chunks); chunks < 2 || len(decoded) != chunks {
		t.Errorf("%d chunks were decoded of %d", len(decoded), chunks)
	}
}

// Whatever is read, what is kept of it is bounded, and the bound counts what is kept.
func TestIndexCache_isBounded(t *testing.T) {
	const messages = 3 * mostIndexed / indexedSize / 2
	s, refs := forManyTargets(t, 1, messages, 1)
	for target, wanted := range refs {
		if got, err := s.Read(wanted, nil); err != nil || len(got) != len(wanted) {
			t.Fatalf("%s: read %d of %d, %v", target, len(got), len(wanted), err)
		}
	}
	bytes := 0
	for _, index := range s.indexes.indexes {
		bytes += index.bytes
	}
	if bytes != s.indexes.bytes || bytes > mostIndexed || len(s.indexes.oldest) != len(s.indexes.indexes) {
		t.Errorf("%d bytes of %d chunks, counted as %d of %d", bytes, len(s.indexes.indexes), s.indexes.bytes, len(s.indexes.oldest))
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

// Segments that a merge has replaced are closed and unlinked, though indexes of theirs are kept, and
// what is read afterwards comes out of the merged one.
func TestRead_afterAMergeOfWhatItHasIndexed(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	for index := uint64(1); index <= 8; index++ {
		script(s, m, operation{Accept: entries(300, int64(index), 1, 500)})
		flush(t, s, index)
		requireEqual(t, s, m)
	}
	before := s.segments
	kept := len(s.indexes.indexes)
	script(s, m, operation{Kill: []SeqRun{{2, 299}, {700, 1500}}})
	flush(t, s, 9)
	mergeAll(t, s)
	if kept < len(before) || len(s.segments) >= len(before) {
		t.Fatalf("%d indexes of %d segments, %d after merging", kept, len(before), len(s.segments))
	}
	for _, g := range before {
		if !slices.Contains(s.segments, g) && g.refs.Load() != 0 {
			t.Errorf("segment %d has %d references left", g.id, g.refs.Load())
		}
	}
	requireEqual(t, s, m)
	requireNoStray(t, s)
}
