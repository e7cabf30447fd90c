package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

func encodedBase(set *aliveSet) []byte { return slices.Concat(slices.Collect(copied(set))...) }

// copied yields the pieces to keep.
func copied(set *aliveSet) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for piece := range set.basePieces() {
			if !yield(bytes.Clone(piece)) {
				return
			}
		}
	}
}

func TestAliveFile_survivesBaseAndChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, next := newAliveSet(), uint64(1)
		births := rapid.Uint64Range(0, 3*blockSeqs)
		live := func(t *rapid.T) {
			if n := births.Draw(t, "born"); n > 0 {
				set.addRange(SeqRun{next, next + n - 1})
				next += n
			}
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
			for range rapid.IntRange(0, 300).Draw(t, "killed") {
				first := random.Uint64N(next)
				set.removeRange(SeqRun{first, first + random.Uint64N(1<<random.IntN(18))})
			}
		}
		live(t)
		then, before := set.freeze(), next
		base := encodedBase(then)
		if got := then.baseSize(); got != int64(len(base)) {
			t.Fatalf("a base of %d bytes was announced with %d", len(base), got)
		}
		var changes []byte
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			live(t)
			now := set.freeze()
			changes = appendPiece(changes, encodeChange(then, now, before, next))
			then, before = now, next
		}
		got, _, err := decodeAliveFile(bytes.NewReader(base), int64(len(base)), changes)
		if err != nil {
			t.Fatal(err)
		}
		if got.count != set.count || !slices.Equal(encodedBase(got), encodedBase(set)) {
			t.Fatalf("%d seqs come back of %d", got.count, set.count)
		}
	})
}

// A change kills what is in no block, at the beginning of many pieces: that is damage,
// and who reads the others ahead ends with it.
func TestDecodeAliveFile_endsAtItsFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newAliveSet()
		for block := uint64(1); block < 400; block++ {
			set.addRange(SeqRun{block << blockBits, block<<blockBits + maxLow})
		}
		base := encodedBase(set)
		if len(base) < 20*pieceSize {
			t.Fatalf("a base of %d bytes", len(base))
		}
		none := aliveSet{epoch: 1}
		none.addRange(SeqRun{5, 5})
		next := uint64(500 << blockBits)
		change := appendPiece(nil, encodeChange(none.freeze(), newAliveSet(), next, next))
		if _, _, err := decodeAliveFile(bytes.NewReader(base), int64(len(base)), change); !errors.Is(err, ErrCorrupt) {
			t.Errorf("got %v", err)
		}
	})
}

// A kill at random takes three bytes, not the page that it lies in.
func TestEncodeChange_isSmall(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	set := newAliveSet()
	for seq := uint64(1); seq < 1<<26; seq += 1 + random.Uint64N(199) {
		set.add(seq)
	}
	then, killed := set.freeze(), 0
	for range 3000 {
		for seq := range set.within(SeqRun{random.Uint64N(1 << 26), 1 << 26}) {
			set.remove(seq)
			killed++
			break
		}
	}
	if size := len(encodeChange(then, set, 1<<26, 1<<26).payload); size > 3*killed+10 {
		t.Errorf("%d kills take %d bytes", killed, size)
	}
	then = set.freeze()
	set.removeRange(SeqRun{1, 1 << 25})
	if size := len(encodeChange(then, set, 1<<26, 1<<26+1000).payload); size > 3*int(then.count-set.count) {
		t.Errorf("half of all take %d bytes", size)
	}
}

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
	if s.manifest.current.stored.id != 0 || fileCount(t, s.manifest.aliveDir()) != 0 {
		t.Error("there is a file at LevelOne")
	}
	if head := s.manifest.current.encodeHead(); head.version != 1 {
		t.Errorf("a head of version %d at LevelOne", head.version)
	}
	before := manifestSize(t, s)
	script(s, m, operation{Level: LevelTwo, Kill: []SeqRun{{7, 9}}})
	flush(t, s, 2)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	if head := s.manifest.current.encodeHead(); head.version != 2 {
		t.Errorf("a head of version %d above LevelOne: programs of before would not refuse it", head.version)
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
	if after.id != before.id || after.base != before.base || after.size-before.size > 40 || after.flushed == 0 {
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
	if got := s.manifest.current.stored; got.id == before.id || got.size != got.base || s.manifest.suspect {
		t.Errorf("%+v became %+v", before, got)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

func TestOpen_reportsDamageToTheAliveFile(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	script(s, m, operation{Accept: entries(200, 0, 1, 10), Kill: []SeqRun{{5, 5}, {20, 250}, {301, 303}}})
	flush(t, s, 2)
	path := s.manifest.alivePath(s.manifest.current.stored.id)
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
	if got := to.manifest.current.stored; got.id == 0 || got.size != got.base || got.count != uint64(len(m.entries)) {
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
		if n := fileCount(t, to.manifest.aliveDir()); n != 0 {
			t.Errorf("%d files are left of it", n)
		}
	}
	requireEqual(t, to, newModel())
}
