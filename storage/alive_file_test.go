package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// raised is a store above LevelOne.
func raised(t *testing.T, dir string) (*Store, *model) {
	t.Helper()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Level: LevelTwo, Accept: entries(300, 0, 1, 10)})
	flush(t, s, 1)
	return s, m
}

// The raise moves the set out of the manifest, and programs of before refuse it.
func TestAliveFile_comesWithTheLevel(t *testing.T) {
	dir := t.TempDir()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Accept: entries(300, 0, 1, 10)})
	flush(t, s, 1)
	if s.manifest.current.stored.ID != 0 || fileCount(t, s.manifest.sets.Path) != 0 {
		t.Error("there is a file at LevelOne")
	}
	if head := s.manifest.current.encodeHead(); head.Version != 1 {
		t.Errorf("a head of version %d at LevelOne", head.Version)
	}
	before := manifestSize(t, s)
	script(s, m, operation{Level: LevelTwo, Kill: []SeqRun{{7, 9}}})
	flush(t, s, 2)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	if head := s.manifest.current.encodeHead(); head.Version != 2 {
		t.Errorf("a head of version %d above LevelOne: programs of before would not refuse it", head.Version)
	}
	if after := manifestSize(t, s); after > before {
		t.Errorf("the manifest has %d bytes, had %d with the set in it", after, before)
	}
}

// manifestSize is what its values take.
func manifestSize(t *testing.T, s *Store) (size int) {
	t.Helper()
	err := s.manifest.db.View(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{manifestBucket, stateBucket} {
			if bucket := tx.Bucket(name); bucket != nil {
				if err := bucket.ForEach(func(_, value []byte) error { size += len(value); return nil }); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func fileCount(t *testing.T, dir string) int {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(files)
}

// Nothing is alive, so there are no segments; what was applied is known all the same.
func TestOpen_missesAManifestBesideAnAliveSet(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	script(s, m, operation{Kill: []SeqRun{{1, 300}}})
	flush(t, s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := fileCount(t, filepath.Join(dir, segmentsName)); n != 0 {
		t.Fatalf("%d segments", n)
	}
	if err := os.Remove(filepath.Join(dir, manifestName)); err != nil {
		t.Fatal(err)
	}
	if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), manifestName) {
		t.Errorf("without its manifest: %v", err)
	}
}

// A flush appends, a merge of segments leaves the file alone.
func TestAliveFile_growsByWhatChanges(t *testing.T) {
	s, m := raised(t, t.TempDir())
	script(s, m, operation{Kill: []SeqRun{{5, 5}, {200, 250}}, Accept: entries(100, 0, 1, 10)})
	before := s.manifest.current.stored
	flush(t, s, 2)
	after := s.manifest.current.stored
	if after.ID != before.ID || after.Base != before.Base || after.Size-before.Size > 40 || after.Flushed == 0 {
		t.Errorf("%+v became %+v", before, after)
	}
	mergeAll(t, s)
	if got := s.manifest.current.stored; got != after {
		t.Errorf("merging made %+v of %+v", got, after)
	}
	requireEqual(t, s, m)
}

// A flush that was appended and not named is written over by the next.
func TestCrash_changeWrittenButNotNamed(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	long := bytes.Repeat([]byte("never named"), 100)
	if err := s.manifest.appendAlive(s.manifest.current.stored, long); err != nil {
		t.Fatal(err)
	}
	left := crash(t, dir, t.TempDir())
	requireReopens(t, crash(t, left, t.TempDir()), m, 1)
	again := openStore(t, left)
	script(again, m, operation{Kill: []SeqRun{{1, 2}}})
	flush(t, again, m.state.AppliedIndex)
	requireReopens(t, crash(t, left, t.TempDir()), m, 1)
}

// After a sync that failed nobody knows what of a change is on disk: the next
// commit does not build on it.
func TestAliveFile_isWrittenAnewAfterAFailedSync(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	before := s.manifest.current.stored
	s.manifest.suspect = true
	script(s, m, operation{Kill: []SeqRun{{1, 2}}})
	flush(t, s, 2)
	if got := s.manifest.current.stored; got.ID == before.ID || got.Size != got.Base || s.manifest.suspect {
		t.Errorf("%+v became %+v", before, got)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

func TestOpen_reportsDamageToTheAliveFile(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	script(s, m, operation{Accept: entries(200, 0, 1, 10), Kill: []SeqRun{{5, 5}, {20, 250}, {301, 303}}})
	flush(t, s, 2)
	path := s.manifest.sets.PathOf(s.manifest.current.stored.ID)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, damaged []byte) {
		t.Helper()
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for at := range content {
		damaged := bytes.Clone(content)
		damaged[at] ^= 1 << (at % 8)
		try("a flipped bit", damaged)
	}
	for size := range len(content) {
		try("a cut file", content[:size])
	}
	for page := 0; page < len(content); page += 16 { // torn: a part was never written
		damaged := bytes.Clone(content)
		if torn := damaged[page:min(page+16, len(damaged))]; !bytes.Equal(torn, make([]byte, len(torn))) {
			clear(torn)
			try("a torn write", damaged)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(path)) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, append(content, "of a flush that was not named"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readEverything(t, dir, m); err != nil {
		t.Errorf("bytes beyond the named end: %v", err)
	}
}

// The stream carries the set as a base, which becomes the receiver's file.
func TestReceive_takesTheBaseOfTheAliveSet(t *testing.T) {
	s, m := changed(t, t.TempDir())
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	if got := to.manifest.current.stored; got.ID == 0 || got.Size != got.Base || got.Count != uint64(len(m.entries)) {
		t.Errorf("received %+v", got)
	}
	requireEqual(t, to, m)
	script(to, m, operation{Kill: []SeqRun{{2, 3}}})
	flush(t, to, m.state.AppliedIndex)
	requireEqual(t, to, m)

	_, size, rc, err := s.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	stream, err := io.ReadAll(rc)
	if err != nil || int64(len(stream)) != size {
		t.Fatalf("a stream of %d bytes, announced with %d: %v", len(stream), size, err)
	}
}

func TestReceive_removesTheBaseOfAnAbortedStream(t *testing.T) {
	s, _ := raised(t, t.TempDir())
	meta, _, rc, err := s.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	stream, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	header := streamPrefix + int(binary.BigEndian.Uint32(stream[len(streamMagic):]))
	to := openStore(t, t.TempDir())
	for _, damage := range []func(b []byte) []byte{
		func(b []byte) []byte { return b[:header+10] },
		func(b []byte) []byte { b[header+8] ^= 1; return b },
	} {
		if err := receive(to, meta, bytes.NewReader(damage(bytes.Clone(stream)))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("damaged stream: %v", err)
		}
		if n := fileCount(t, to.manifest.sets.Path); n != 0 {
			t.Errorf("%d files are left of it", n)
		}
	}
	requireEqual(t, to, newModel())
}
