//go:build !race

// With the race detector this would take two minutes, and there is one goroutine.

package storage

import (
	"encoding/binary"
	"runtime"
	"testing"
)

// Ten million messages due in one minute are on disk, merged, and come back in order, while memory holds
// a quarter of a million of them.
func TestTenMillionDueInOneMinute_comeInOrderFromBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 600 MB")
	}
	const (
		perFlush = million / 4
		most     = 64 << 20 // bytes of live heap; ten million messages in memory would take a gigabyte
	)
	s := openStore(t, t.TempDir())
	index := uint64(0)
	for s.State().Pending < 10*million {
		for range perFlush / perBatch {
			s.Accept(crowd(s.State().NextSeq, perBatch))
			index++
			s.Applied(index)
		}
		if heap := liveHeap(); heap > most {
			t.Fatalf("%d bytes of heap with %d messages", heap, s.State().Pending)
		}
		flush(t, s, index)
		mergeAll(t, s)
	}
	want := s.State().Pending
	if segments := s.Stats().Segments; segments > 20 {
		t.Errorf("%d segments are left of 40 that were written", segments)
	}

	var last, from Ref
	var items []Item
	got := uint64(0)
	for calls, done := 0, false; !done; calls++ {
		var err error
		if items, from, done, err = s.Scan(from, Ref{}, 4096, nil, items[:0]); err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if !last.Less(item.Ref) || item.Ref.Due != crowdDue(item.Ref.Seq) {
				t.Fatalf("%+v comes after %+v", item.Ref, last)
			}
			last = item.Ref
		}
		got += uint64(len(items))
		if calls%64 == 0 {
			readCrowd(t, s, items)
			if heap := liveHeap(); heap > most {
				t.Fatalf("%d bytes of heap in the middle of the scan", heap)
			}
		}
	}
	if got != want { // in strict order of (due, seq): none is missing, none comes twice
		t.Errorf("%d of %d messages come", got, want)
	}
}

// crowdDue scatters neighbours over the minute; about 170 messages share a millisecond.
func crowdDue(seq uint64) int64 { return int64(seq * 2_654_435_761 % 60_000) }

// crowd returns n messages that are accepted as first and what follows; each body is its seq.
func crowd(first uint64, n int) []Entry {
	const size = 32
	entries, bodies := make([]Entry, n), make([]byte, n*size) // one log entry holds the batch's bodies
	for i := range entries {
		seq, body := first+uint64(i), bodies[i*size:(i+1)*size:(i+1)*size]
		binary.BigEndian.PutUint64(body, seq)
		entries[i] = Entry{Due: crowdDue(seq), Target: "orders", Body: body}
	}
	return entries
}

func readCrowd(t *testing.T, s *Store, items []Item) {
	t.Helper()
	refs := make([]Ref, len(items))
	for i, item := range items {
		refs[i] = item.Ref
	}
	entries, err := s.Read(refs, nil)
	if err != nil || len(entries) != len(refs) {
		t.Fatalf("read %d of %d: %v", len(entries), len(refs), err)
	}
	for _, e := range entries {
		if binary.BigEndian.Uint64(e.Body) != e.Seq {
			t.Fatalf("seq %d has the body of %d", e.Seq, binary.BigEndian.Uint64(e.Body))
		}
	}
}

// liveHeap is what is left after a collection.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
