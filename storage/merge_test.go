package storage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
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

// What has died counts from its death until the next flush, and what the memtable has of it never.
func TestDeadSinceFlush(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(1000, 0, 1, 1000)})
	flush(t, s, 1)
	script(s, m, operation{Accept: entries(1000, 0, 1, 1000)})
	if dead := s.DeadSinceFlush(); dead != 0 {
		t.Errorf("%d bytes with all alive", dead)
	}
	script(s, m, operation{Kill: []SeqRun{{1, 500}, {1001, 2000}}})
	if dead, want := s.DeadSinceFlush(), s.Stats().SegmentBytes/2; dead != want {
		t.Errorf("%d bytes, want %d: half of the segment", dead, want)
	}
	flush(t, s, 3)
	if dead := s.DeadSinceFlush(); dead != 0 {
		t.Errorf("%d bytes after a flush that knows all that died", dead)
	}
	script(s, m, operation{Kill: []SeqRun{{501, 600}}})
	if dead, want := s.DeadSinceFlush(), s.Stats().SegmentBytes/10; dead != want {
		t.Errorf("%d bytes, want %d: what has died since", dead, want)
	}
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
	if st := s.Stats(); st.Segments != 1 || st.SegmentBytes < 24<<20 {
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

// Seventy documents were delivered, thirty reminders wait: by number a third is
// alive, by size nothing.
func TestMerge_countsBytesNotMessages(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: append(entries(70, 0, 1, 256<<10), entries(30, 1e12, 1, 100)...)})
	flush(t, s, 1)
	script(s, m, operation{Kill: []SeqRun{{1, 70}}})
	flush(t, s, 2)
	mergeAll(t, s)
	if left := s.Stats().SegmentBytes; left > 1<<20 {
		t.Errorf("%d bytes are left for 3 KB", left)
	}
	requireEqual(t, s, m)
}

// One body was damaged by the disk. It stays where it is, and all others are merged.
func TestMerge_goesOnBesideADamagedSegment(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	s.cfg.MergeWidth, s.cfg.MaxSegments = 2, 4
	body := []byte("the only one of its kind")
	s.Accept(append(entries(9, 0, 1, 100), Entry{Due: 5, Target: "orders", Body: body}))
	s.Applied(1)
	flush(t, s, 1)
	path := s.segments[0].Path
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, body)] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for index := uint64(2); index <= 30; index++ {
		s.Accept(entries(10, int64(index), 1, 100))
		s.Applied(index)
		flush(t, s, index)
		for did := true; did; {
			if did, err = s.Merge(t.Context()); err != nil && (!errors.Is(err, ErrCorrupt) || index > 3) {
				t.Fatalf("merge after flush %d: %v", index, err)
			}
		}
	}
	if n := s.Stats().Segments; n > 4 || s.segments[0].Path != path {
		t.Errorf("%d segments, of which the first is %s", n, s.segments[0].Path)
	}
}

// A merge waits for its pace, and what has died meanwhile goes with the flush.
func TestFlush_dropsTheDeadWhileAMergeWaits(t *testing.T) {
	asked, paid := make(chan int), make(chan error)
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, MergeWidth: 2, Pace: func(_ context.Context, n int) error {
		asked <- n
		return <-paid
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := newModel()
	for index := uint64(1); index <= 3; index++ {
		script(s, m, operation{Accept: entries(1200, 0, 1, 1000)})
		flush(t, s, index)
	}
	merged := make(chan error)
	go func() {
		_, err := s.Merge(context.Background())
		merged <- err
	}()
	if n := <-asked; n < paceBytes || n > 2*paceBytes {
		t.Errorf("the merge asks for %d bytes", n)
	}
	script(s, m, operation{Kill: []SeqRun{{1, 1200}, {2401, 3600}}})
	flush(t, s, 4)
	if st := s.Stats(); st.Segments != 1 {
		t.Errorf("%+v while a merge waits", st)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	paid <- nil
	<-asked
	paid <- nil
	if err := <-merged; err != nil {
		t.Fatal(err)
	}
	requireEqual(t, s, m)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	requireNoStray(t, s)
}

func TestMerge_stopsWhenItsPaceSaysSo(t *testing.T) {
	stopped := errors.New("no more")
	s, err := Open(Config{Dir: t.TempDir(), MergeWidth: 2, Pace: func(context.Context, int) error { return stopped }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := newModel()
	for index := uint64(1); index <= 2; index++ {
		script(s, m, operation{Accept: entries(1200, 0, 1, 1000)})
		flush(t, s, index)
	}
	if did, err := s.Merge(context.Background()); did || !errors.Is(err, stopped) {
		t.Errorf("merge: %v, %v", did, err)
	}
	requireNoStray(t, s)
	requireEqual(t, s, m)
}

// A sample of a large file takes long: a node that closes does not wait for it.
func TestMerge_stopsSamplingWithItsContext(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(1000, 0, 1, 1000)})
	flush(t, s, 1)
	script(s, m, operation{Kill: []SeqRun{{1, 990}}})
	flush(t, s, 2)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if did, err := s.Merge(ctx); did || !errors.Is(err, context.Canceled) {
		t.Fatalf("merge: %v, %v", did, err)
	}
	mergeAll(t, s)
	requireEqual(t, s, m)
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
	kept := s.indexes.Len()
	script(s, m, operation{Kill: []SeqRun{{2, 299}, {700, 1500}}})
	flush(t, s, 9)
	mergeAll(t, s)
	if kept < len(before) || len(s.segments) >= len(before) {
		t.Fatalf("%d indexes of %d segments, %d after merging", kept, len(before), len(s.segments))
	}
	for _, g := range before {
		if slices.Contains(s.segments, g) {
			continue
		}
		if c, err := g.Cursor(false); err == nil {
			t.Errorf("segment %d is still open", g.ID)
			c.Close()
		}
	}
	requireEqual(t, s, m)
	requireNoStray(t, s)
}
