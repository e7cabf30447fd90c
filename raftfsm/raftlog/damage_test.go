package raftlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	walfs "github.com/hashicorp/raft-wal/fs"
)

// closedLog holds entries 1 to 8, two or three in a segment, of which one is not sealed.
func closedLog(t *testing.T) (dir string) {
	t.Helper()
	l := openTestSegmentLog(t, t.TempDir(), walfs.New())
	for i := range uint64(8) {
		if err := l.StoreLog(entry(i+1, testSegmentSize/3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.dir
}

// Raft-wal hands a damaged entry out as it is, and ends the tail before a damaged frame.
func TestSegmentLog_refusesWhatIsNotAsItWasWritten(t *testing.T) {
	segments := func(dir string) []string {
		paths, err := filepath.Glob(filepath.Join(dir, "*-*.wal"))
		if err != nil || len(paths) < 3 {
			t.Fatalf("%v, %v", paths, err)
		}
		return paths
	}
	first := func(dir string) string { return segments(dir)[0] }
	tail := func(dir string) string { all := segments(dir); return all[len(all)-1] }
	meta := func(dir string) string { return filepath.Join(dir, File(WAL)) }
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 4; return b }
	}
	const frame = walFrameLen + testSegmentSize/3
	for _, tt := range []struct {
		name   string
		file   func(dir string) string
		damage func([]byte) []byte
		say    string // "": it is not damage
	}{
		{"the header", first, flip(9), "byte 0:"},
		{"an entry of a sealed segment", first, flip(500), "byte 0:"},
		{"an entry of the tail that others follow", tail, flip(500), "which came later"},
		{"the head of a frame that others follow", tail, flip(walHeaderLen + 5), "which came later"},
		{"the last append", tail, func(b []byte) []byte { b[lastByte(b)-frame/2] ^= 4; return b }, "written to its end"},
		{"the sum of the last append", tail, func(b []byte) []byte { b[lastByte(b)] ^= 4; return b }, "written to its end"},
		{"a sector of the last append, which a crash leaves", tail, func(b []byte) []byte {
			at := (lastByte(b) - frame/2) / sector * sector
			clear(b[at : at+sector])
			return b
		}, ""},
		{"the index", first, func(b []byte) []byte { b[bytes.LastIndex(b, []byte{walIndexFrame, 0, 0, 0})+9] ^= 4; return b }, "byte "},
		{"the end", tail, func(b []byte) []byte { return b[:len(b)/2] }, "made with"},
		{"the list of segments", meta, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"Segments"`), []byte(`"Segmants"`)) }, "names no segment"},
		{"the number of the tail", meta, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`{"ID":2`), []byte(`{"ID":7`)) }, "is the last"},
		{"a meta page", meta, func(b []byte) []byte { clear(b[16:80]); return b }, "byte 0:"},
		{"the other meta page", meta, func(b []byte) []byte { clear(b[4096+16 : 4096+80]); return b }, "byte 4096:"},
	} {
		dir := closedLog(t)
		path := tt.file(dir)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := tt.damage(bytes.Clone(content))
		if bytes.Equal(damaged, content) {
			t.Errorf("%s: nothing was damaged", tt.name)
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := Inspect(filepath.Dir(dir), filepath.Base(dir), func(*raft.Log) error { return nil })
		if err != nil || (len(found.Damages) > 0) != (tt.say != "") {
			t.Errorf("%s: inspected %+v, %v", tt.name, found, err)
		}
		l, err := openSegmentLog(dir, testSegmentSize, quiet(), walfs.New())
		if err == nil {
			if last, _ := l.LastIndex(); tt.say != "" || last != 7 {
				t.Errorf("%s: opened up to entry %d", tt.name, last)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, raftfsm.ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tt.say) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// One bit of the last append, which was acknowledged, is another: in a head, in an entry, in a seal.
func TestSegmentLog_refusesEachBitOfTheLastAppend(t *testing.T) {
	for _, size := range []int{150, testSegmentSize} { // the last fills the segment
		l := openTestSegmentLog(t, t.TempDir(), walfs.New())
		store(t, l, randomEntry(1, 1, 200))
		if err := l.meta.BoltMetaDB.Close(); err != nil { // so that the rotation is not recorded
			t.Fatal(err)
		}
		before, after := storeAndClose(t, l, withSums([]*raft.Log{randomEntry(2, 1, 30), randomEntry(3, 1, size), randomEntry(4, 1, 40)})...)
		state, err := readState(filepath.Join(l.dir, File(WAL)))
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(tailOf(t, l.dir), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		begin, end := firstChange(before, after), lastByte(after)
		commit := end / walFrameLen * walFrameLen
		for at := begin; at <= end; at++ {
			if isUnused := commit < at && at < commit+4; isUnused || begin+110 < at && at < end-110 && at%101 != 0 {
				continue
			}
			for bit := range 8 {
				if _, err := file.WriteAt([]byte{after[at] ^ 1<<bit}, int64(at)); err != nil {
					t.Fatal(err)
				}
				if _, err := checkSegments(l.dir, state, nil, nil); !errors.Is(err, codec.ErrCorrupt) {
					t.Errorf("size %d: bit %d of byte %d, of %d to %d: %v", size, bit, at, begin, end, err)
				}
			}
			if _, err := file.WriteAt(after[at:at+1], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func lastByte(b []byte) int { return len(bytes.TrimRight(b, "\x00")) - 1 }

// What a node has promised is under a checksum from level two on.
func TestStable_refusesLessThanWasPromised(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s *raftboltdb.BoltStore) error
		want   error
	}{
		{"nothing", func(*raftboltdb.BoltStore) error { return nil }, nil},
		{"a later term, by a program that seals nothing", func(s *raftboltdb.BoltStore) error { return s.SetUint64(termKey, 9) }, nil},
		{"a later vote by such a one", func(s *raftboltdb.BoltStore) error {
			return errors.Join(s.SetUint64(termKey, 9), s.SetUint64(voteTermKey, 9), s.Set(voteKey, []byte("c:1")))
		}, nil},
		{"an earlier term", func(s *raftboltdb.BoltStore) error { return s.SetUint64(termKey, 6) }, raftfsm.ErrDamaged},
		{"an earlier vote", func(s *raftboltdb.BoltStore) error { return s.SetUint64(voteTermKey, 3) }, raftfsm.ErrDamaged},
		{"a vote for another", func(s *raftboltdb.BoltStore) error { return s.Set(voteKey, []byte("b:3")) }, raftfsm.ErrDamaged},
		{"a vote in a term to come", func(s *raftboltdb.BoltStore) error { return s.SetUint64(voteTermKey, 8) }, raftfsm.ErrDamaged},
		{"the note of a cleared log", func(s *raftboltdb.BoltStore) error { return s.SetUint64(clearedKey, 10) }, raftfsm.ErrDamaged},
		{"the seal", func(s *raftboltdb.BoltStore) error { return s.Set(sealKey, []byte("\x01\x02\x03\x04\x05\x06")) }, raftfsm.ErrDamaged},
	} {
		dir := t.TempDir()
		s, err := OpenStable(dir)
		if err != nil {
			t.Fatal(err)
		}
		s.level = func() storage.Level { return storage.LevelTwo }
		if err := errors.Join(s.SetUint64(termKey, 7), s.SetUint64(voteTermKey, 7), s.Set(voteKey, []byte("b:1")), s.SetUint64(clearedKey, 14), tt.change(s.BoltStore), s.Close()); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenStable(dir); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// A heartbeat that raft answers beside its main loop may set its term after a vote has set a later one.
func TestStable_goesBackToNoEarlierTerm(t *testing.T) {
	for _, level := range []storage.Level{storage.LevelOne, storage.LevelTwo} {
		dir := t.TempDir()
		s, err := OpenStable(dir)
		if err != nil {
			t.Fatal(err)
		}
		s.level = func() storage.Level { return level }
		if err := errors.Join(s.SetUint64(termKey, 7), s.SetUint64(termKey, 7)); err != nil {
			t.Fatal(err)
		}
		if err := s.SetUint64(termKey, 6); err == nil {
			t.Errorf("level %d: term 6 was taken after term 7", level)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenStable(dir); err != nil {
			t.Fatalf("level %d: %v", level, err)
		}
		if term, err := s.GetUint64(termKey); err != nil || term != 7 {
			t.Errorf("level %d: term %d, %v", level, term, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A later term waits for what is done within the one before.
func TestStable_risesWhenNothingIsDoneWithinItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := OpenStable(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetUint64(termKey, 7); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		if !s.Within(7, func() {
			go func() { written <- s.SetUint64(termKey, 8) }()
			synctest.Wait()
			if err := s.SetUint64(termKey, 7); err != nil || len(written) > 0 {
				t.Errorf("term 7 again: %v; %d later terms written within it", err, len(written))
			}
		}) {
			t.Error("nothing was done within term 7")
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		for term := range uint64(10) {
			if s.Within(term, func() {}) != (term == 8) {
				t.Errorf("in term 8 something was done within %d, or nothing within 8", term)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if s, err = OpenStable(dir); err != nil {
			t.Fatal(err)
		}
		if !s.Within(8, func() {}) {
			t.Error("opened again it is in another term")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Raft writes a vote in two steps. The log may be cleared between them, by another goroutine.
func TestStable_sealsNoHalfOfAVote(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStable(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.level = func() storage.Level { return storage.LevelTwo }
	if err := errors.Join(
		s.SetUint64(termKey, 17), s.SetUint64(voteTermKey, 17), s.Set(voteKey, []byte("a:1")),
		s.SetUint64(termKey, 18), s.SetUint64(voteTermKey, 18), s.SetUint64(clearedKey, 383), s.Set(voteKey, []byte("b:1")),
	); err != nil {
		t.Fatalf("a vote beside a log that is cleared: %v", err)
	}
	if p, err := readPromises(StableFile, s.BoltStore); err != nil || !p.sealed || p.cleared != 383 {
		t.Errorf("promises %+v, %v", p, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenStable(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Below level two nothing is written that was not before.
func TestLevelOne_writesNoChecksums(t *testing.T) {
	dir := t.TempDir()
	stable, err := OpenStable(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: dir, Kind: WAL, SegmentSize: testSegmentSize, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []storage.Level{storage.LevelOne, storage.LevelTwo} {
		s.level, stable.level = func() storage.Level { return level }, func() storage.Level { return level }
		if err := errors.Join(stable.SetUint64(termKey, uint64(level)), s.StoreLog(entry(uint64(level), 10))); err != nil {
			t.Fatal(err)
		}
		_, err := stable.Get(sealKey)
		var raw, e raft.Log
		if err := errors.Join(s.LogStore.GetLog(uint64(level), &raw), s.GetLog(uint64(level), &e)); err != nil {
			t.Fatal(err)
		}
		if two := level == storage.LevelTwo; (err == nil) != two || (len(raw.Extensions) > 0) != two || len(e.Extensions) > 0 {
			t.Errorf("level %d: seal %v, entry %v read as %v", level, err, raw.Extensions, e.Extensions)
		}
	}
	if err := errors.Join(s.Close(), stable.Close()); err != nil {
		t.Error(err)
	}
}

// An entry that is not as it was written is neither applied nor sent: the node stops.
func TestStore_stopsTheNodeAtADamagedEntry(t *testing.T) {
	for _, kind := range []string{WAL, BoltDB} {
		var failure error
		s, err := Open(Config{Dir: t.TempDir(), Kind: kind, SegmentSize: testSegmentSize, Logger: quiet(), Fail: func(err error) { failure = err }})
		if err != nil {
			t.Fatal(err)
		}
		s.level = func() storage.Level { return storage.LevelTwo }
		damaged := *withSums([]*raft.Log{entry(1, 10)})[0]
		damaged.Data = []byte("something else")
		if err := errors.Join(s.LogStore.StoreLog(&damaged), s.StoreLog(entry(2, 10))); err != nil {
			t.Fatal(err)
		}
		if err := s.GetLog(2, new(raft.Log)); err != nil || failure != nil {
			t.Errorf("%s: %v, %v", kind, err, failure)
		}
		if err := s.GetLog(1, new(raft.Log)); !errors.Is(err, raftfsm.ErrDamaged) || !errors.Is(failure, raftfsm.ErrDamaged) {
			t.Errorf("%s: read it with %v, the node fails with %v", kind, err, failure)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
