package storage

import (
	"errors"
	"os"
	"testing"
)

// A commit whose last sync failed: the file leads to it, the disk may not.
func TestCommit_isWrittenAnewAfterAFailedSync(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Accept: entries(20, 0, 1, 10)})
	flush(t, s, 1)
	before := manifestFile(t, s)

	script(s, m, operation{Kill: []SeqRun{{3, 4}}})
	flushWith(t, s, func(next *contents) error {
		return errors.Join(write(s.manifest.db, next, &s.manifest.current), s.manifest.recover(next, errors.New("sync failed")))
	})
	if os.SameFile(before, manifestFile(t, s)) {
		t.Fatal("the file whose sync failed is still the manifest")
	}
	requireEqual(t, s, m)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)

	script(s, m, operation{Accept: entries(20, 0, 1, 10)})
	flush(t, s, 3)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 2)
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("second Open: %v", err)
	}
}

// A process that ends because the file could not be replaced leaves the one whose sync failed to the next.
func TestOpen_writesAnewTheManifestWhoseReplacementFailed(t *testing.T) {
	for _, left := range []bool{false, true} {
		dir := t.TempDir()
		s, m := raised(t, dir)
		before := manifestFile(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		fresh := s.manifest.freshPath()
		if left {
			if err := os.WriteFile(fresh, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s = openStore(t, dir)
		if replaced := !os.SameFile(before, manifestFile(t, s)); replaced != left {
			t.Errorf("a replacement was left: %t, the manifest is written anew: %t", left, replaced)
		}
		if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the replacement: %v", err)
		}
		requireEqual(t, s, m)
		requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	}
}

func TestCommit_thatWasNotWrittenChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Accept: entries(20, 0, 1, 10)})
	flush(t, s, 1)
	named := m.clone()

	script(s, m, operation{Kill: []SeqRun{{3, 4}}})
	cause := errors.New("write failed")
	flushWith(t, s, func(next *contents) error {
		if err := s.manifest.recover(next, cause); !errors.Is(err, cause) || errors.Is(err, ErrFailed) {
			t.Errorf("recover: %v", err)
		}
		return nil
	})
	if _, err := os.Stat(s.manifest.freshPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark of a file to be replaced: %v", err)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
	flush(t, s, 2)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

// A file of the alive-set whose sync failed is not written to any more until a commit
// names another: that commit may fail, too.
func TestCommit_thatWasNotWrittenLeavesTheAliveFileSuspect(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	named, before := m.clone(), s.manifest.current.stored
	s.manifest.suspect = true
	script(s, m, operation{Kill: []SeqRun{{3, 4}}})
	f := s.Freeze()
	if err := s.manifest.db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(SnapshotMeta{Index: 2, Term: 1}); err == nil || errors.Is(err, ErrFailed) {
		t.Fatalf("flush into a closed manifest: %v", err)
	}
	if !s.manifest.suspect || s.manifest.current.stored != before {
		t.Errorf("%+v became %+v, suspect %v", before, s.manifest.current.stored, s.manifest.suspect)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
	if err := f.Flush(SnapshotMeta{Index: 2, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if got := s.manifest.current.stored; got.ID == before.ID || s.manifest.suspect {
		t.Errorf("%+v became %+v", before, got)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

// A node shows its state while a commit waits for the disk.
func TestManifestMeta_doesNotWaitForACommit(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(1, 0, 1, 10)})
	flush(t, s, 1)
	s.manifest.mu.Lock() // as a commit does
	defer s.manifest.mu.Unlock()
	if got := s.ManifestMeta().Index; got != 1 {
		t.Errorf("index %d", got)
	}
}

func TestCommit_failsTheStoreWhenNothingIsKnown(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := openStore(t, dir)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	flushWith(t, s, func(next *contents) error {
		if err := s.manifest.recover(next, errors.New("sync failed")); !errors.Is(err, ErrFailed) {
			t.Errorf("recover: %v", err)
		}
		return nil
	})
	if err := s.Freeze().Flush(SnapshotMeta{Index: 1}); !errors.Is(err, ErrFailed) {
		t.Errorf("flush: %v", err)
	}
}

// flushWith names what memory holds, without new entries, by commit.
func flushWith(t *testing.T, s *Store, commit func(next *contents) error) {
	t.Helper()
	f := s.Freeze()
	defer f.Release()
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	next := s.manifest.current
	next.number++
	next.meta, next.state, next.alive, next.outcomes = SnapshotMeta{Index: f.applied, Term: 1}, encodeValues(&f.values), f.alive, f.outcomes
	if err := commit(&next); err != nil {
		t.Fatal(err)
	}
}

func manifestFile(t *testing.T, s *Store) os.FileInfo {
	t.Helper()
	stat, err := os.Stat(s.manifest.path())
	if err != nil {
		t.Fatal(err)
	}
	return stat
}
