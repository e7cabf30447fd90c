package storage

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
)

// Each test takes a copy of the directory at a moment that a crash could choose,
// and opens it: DESIGN.md lists the moments.

func requireReopens(t *testing.T, copied string, want *model, segments int) {
	t.Helper()
	s := openStore(t, copied)
	requireEqual(t, s, want)
	files, err := filepath.Glob(filepath.Join(copied, segmentsName, "*"))
	if err != nil || len(files) != segments {
		t.Fatalf("%d segment files, want %d (error %v)", len(files), segments, err)
	}
}

// script applies op to a store and a model.
func script(s *Store, m *model, op operation) {
	index := m.state.AppliedIndex + 1
	m.apply(index, op)
	applyTo(s, index, op)
}

func TestCrash_segmentWrittenButNotNamed(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Accept: entries(10, 0, 1, 10)})
	flush(t, s, 1)
	named := m.clone()
	script(s, m, operation{Accept: entries(10, 0, 1, 10), Kill: []SeqRun{{3, 4}}})
	f := s.Freeze()
	written, err := f.writeSegment()
	if err != nil {
		t.Fatal(err)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
	s.discard(written)
	f.Release()
	requireEqual(t, s, m)
}

func TestCrash_segmentHalfWritten(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	_, path := s.manifest.newSegment()
	w, err := segment.Create(path, segment.Plain, 1, 300, 300)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Abort(nil); err != nil {
			t.Error(err)
		}
	}()
	for _, e := range entries(300, 0, 1, 40_000) {
		if err := w.Add(&e); err != nil {
			t.Fatal(err)
		}
	}
	if stat, err := os.Stat(path); err != nil || stat.Size() < 8<<20 {
		t.Fatalf("%+v was written (error %v)", stat, err)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), m, 0)
}

func TestCrash_mergedButOldSegmentsNotUnlinked(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	for index := uint64(1); index <= 2; index++ {
		script(s, m, operation{Accept: entries(10, 0, 1, 10), Kill: []SeqRun{{3, 4}}})
		flush(t, s, index)
	}
	pinned, err := s.pinNamed() // a reader keeps the old files
	if err != nil {
		t.Fatal(err)
	}
	mergeAll(t, s)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	segment.ReleaseAll(pinned.segments)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

// A commit is two transactions. The outcomes are in the first, with what names them.
func TestCrash_outcomesWrittenButTheCommitNotRepeated(t *testing.T) {
	dir := t.TempDir()
	s, m := ended(t, dir)
	named := m.clone()
	script(s, m, operation{Time: 6000, Keep: &outcomes.Keep{For: 5000, Count: 1200}, End: ends(1500, 1, 6000)})
	requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
	flushWith(t, s, func(next *contents) error {
		err := s.manifest.db.Update(func(tx *bbolt.Tx) error {
			if err := next.put(tx, &s.manifest.current); err != nil {
				return err
			}
			requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
			return nil
		})
		requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
		s.manifest.replace(*next)
		return err
	})
	script(s, m, operation{End: ends(40, 1, 7000)})
	flush(t, s, 3)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

func TestCrash_receivedButNotReloaded(t *testing.T) {
	from, sent := openStore(t, t.TempDir()), newModel()
	script(from, sent, operation{Accept: entries(20, 0, 1, 10)})
	flush(t, from, 1)
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Accept: entries(5, 0, 1, 10)})
	flush(t, s, 1)
	script(s, m, operation{Kill: []SeqRun{{2, 2}}})
	f := s.Freeze()

	meta, _, rc, err := from.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	r, err := s.Receive(meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(r, rc); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(); err != nil {
		t.Fatal(err)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), sent, 1)
	requireReaders(t, s, m)
	if err := f.Flush(SnapshotMeta{Index: 2}); !errors.Is(err, ErrGeneration) {
		t.Fatalf("flush between Commit and Reload: %v", err)
	}
	if did, err := s.Merge(context.Background()); did || err != nil {
		t.Fatalf("merge between Commit and Reload: %v, %v", did, err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, s, sent)
}

// requireReaders compares what readers see, not what the disk names.
func requireReaders(t *testing.T, s *Store, m *model) {
	t.Helper()
	if got, want := len(scanAll(t, s, 100)), len(m.entries); got != want {
		t.Fatalf("readers see %d messages, want %d", got, want)
	}
}

// A merge must keep what is alive at the manifest's index although it has died
// since: after a crash the node starts there.
func TestMerge_keepsWhatDiedAfterTheManifestsIndex(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	for index := uint64(1); index <= 2; index++ {
		script(s, m, operation{Accept: entries(10, 0, 1, 10)})
		flush(t, s, index)
	}
	named := m.clone()
	script(s, m, operation{Kill: []SeqRun{{1, 20}}})
	mergeAll(t, s)
	requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
	requireEqual(t, s, m)
	flush(t, s, 3)
	mergeAll(t, s)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 0)
}
