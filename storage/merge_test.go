package storage

import (
	"context"
	"errors"
	"os"
	"testing"
)

func TestMerge_boundsTheNumberOfSegments(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, MergeWidth: 4, MaxSegments: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := newModel()
	for index := uint64(1); index <= 40; index++ {
		script(s, m, operation{Accept: entries(int(1+index%7*index), 0, 1, 100)})
		flush(t, s, index)
		mergeAll(t, s)
		if n := s.Stats().Segments; n > 5 {
			t.Fatalf("%d segments after flush %d", n, index)
		}
	}
	requireEqual(t, s, m)
}

func TestMerge_givesBackTheSpaceOfTheDead(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(2000, 0, 1, 1000)})
	flush(t, s, 1)
	full := s.Stats().SegmentBytes
	script(s, m, operation{Kill: []SeqRun{{1, 1900}}})
	flush(t, s, 2)
	mergeAll(t, s)
	if left := s.Stats().SegmentBytes; left > full/8 {
		t.Errorf("%d of %d bytes left with a 20th alive", left, full)
	}
	requireEqual(t, s, m)
	script(s, m, operation{Kill: []SeqRun{{1901, 2000}}})
	flush(t, s, 3)
	mergeAll(t, s)
	if st := s.Stats(); st.Segments != 0 || st.SegmentBytes != 0 {
		t.Errorf("%+v with nothing alive", st)
	}
	requireEqual(t, s, m)
}

// A segment of several transactions uses the memory of its chunks again.
func TestMerge_writesMoreThanOneTransactionHolds(t *testing.T) {
	dir := memoryDir(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, m := openStore(t, dir), newModel()
	for index := uint64(1); index <= 2; index++ {
		large := entries(4, int64(index), 3000, 1<<20)
		script(s, m, operation{Accept: append(entries(9000, int64(index), 1, 1000), large...)})
		flush(t, s, index)
		requireEqual(t, s, m)
	}
	mergeAll(t, s)
	if st := s.Stats(); st.Segments != 1 || st.SegmentBytes < 3*transactionSize {
		t.Fatalf("%+v after merging", st)
	}
	requireEqual(t, s, m)
}

func TestMerge_stopsWithItsContext(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	for index := uint64(1); index <= 2; index++ {
		script(s, m, operation{Accept: entries(10, 0, 1, 10)})
		flush(t, s, index)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if did, err := s.Merge(ctx); did || !errors.Is(err, context.Canceled) {
		t.Fatalf("merge: %v, %v", did, err)
	}
	requireEqual(t, s, m)
}

// What a stream sends stays on disk until it is closed, whatever is merged.
func TestOpenStream_keepsItsSegments(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(500, 0, 1, 1000)})
	flush(t, s, 1)
	sent := m.clone()
	meta, _, rc, err := s.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	script(s, m, operation{Kill: []SeqRun{{1, 500}}})
	flush(t, s, 2)
	mergeAll(t, s)
	to := openStore(t, t.TempDir())
	if err := receive(to, meta, rc); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, to, sent)
	if err := rc.Close(); err != nil {
		t.Fatal(err)
	}
	requireNoStray(t, s)
}
