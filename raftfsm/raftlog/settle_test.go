package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// A cachedDisk is a disk behind a page cache.
type cachedDisk struct {
	types.VFS
	disk    string // the files as they are on the disk; processes see others
	sync    func(f *cachedFile) error
	refuses bool                      // to write
	dirty   map[string]map[int64]bool // pages to be written, by file
}

// ends is a sync in which the process ends before it did anything.
func ends(*cachedFile) error { return nil }

// drops is a sync of a disk that fails: what was to be written counts as written, as Linux has it.
func drops(f *cachedFile) error {
	clear(f.disk.dirty[f.name])
	return syscall.EIO
}

// fails is one that fails when all is written.
func fails(f *cachedFile) error { return errors.Join(f.write(), syscall.EIO) }

// failsAndRefuses is one after which nothing can be written.
func failsAndRefuses(f *cachedFile) error {
	f.disk.refuses = true
	return fails(f)
}

// dropsAndEnds is one in which the process ends then.
func dropsAndEnds(f *cachedFile) error {
	_ = drops(f)
	return nil
}

const page = 4096

func newCachedDisk(t *testing.T) *cachedDisk {
	return &cachedDisk{VFS: walfs.New(), disk: t.TempDir(), sync: (*cachedFile).write, dirty: make(map[string]map[int64]bool)}
}

// inTurn has the next syncs do that, and all others what they should.
func (d *cachedDisk) inTurn(next ...func(*cachedFile) error) {
	d.sync = func(f *cachedFile) error {
		if len(next) == 0 {
			return f.write()
		}
		do := next[0]
		next = next[1:]
		return do(f)
	}
}

// losePower leaves of the files in dir what is on the disk.
func (d *cachedDisk) losePower(t *testing.T, dir string) {
	t.Helper()
	for name := range d.dirty {
		content, err := os.ReadFile(filepath.Join(d.disk, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	clear(d.dirty)
}

func (d *cachedDisk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := d.VFS.Create(dir, name, size)
	if err == nil {
		err = os.WriteFile(filepath.Join(d.disk, name), make([]byte, size), 0o600)
	}
	return d.cached(name, f, err)
}

func (d *cachedDisk) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := d.VFS.OpenWriter(dir, name)
	return d.cached(name, f, err)
}

func (d *cachedDisk) cached(name string, f types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	if d.dirty[name] == nil {
		d.dirty[name] = make(map[int64]bool)
	}
	return &cachedFile{f, d, name}, nil
}

type cachedFile struct {
	types.WritableFile
	disk *cachedDisk
	name string
}

func (f *cachedFile) WriteAt(b []byte, at int64) (int, error) {
	if f.disk.refuses {
		return 0, syscall.EIO
	}
	for p := at / page; p*page < at+int64(len(b)); p++ {
		f.disk.dirty[f.name][p] = true
	}
	return f.WritableFile.WriteAt(b, at)
}

func (f *cachedFile) Sync() error { return f.disk.sync(f) }

func (f *cachedFile) write() error {
	disk, err := os.OpenFile(filepath.Join(f.disk.disk, f.name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer disk.Close()
	content := make([]byte, page)
	for p := range f.disk.dirty[f.name] {
		n, _ := f.ReadAt(content, p*page)
		if _, err := disk.WriteAt(content[:n], p*page); err != nil {
			return err
		}
	}
	clear(f.disk.dirty[f.name])
	return nil
}

// randomEntry has bytes of which none is zero.
func randomEntry(index, term uint64, size int) *raft.Log {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(1 + rand.IntN(255))
	}
	return &raft.Log{Index: index, Term: term, Data: data}
}

const settledSize = 64 << 10

func openSettled(t *testing.T, dir string, files types.VFS) *segmentLog {
	t.Helper()
	l, err := openSegmentLog(dir, settledSize, quiet(), files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func store(t *testing.T, l *segmentLog, entries ...*raft.Log) {
	t.Helper()
	if err := l.StoreLogs(entries); err != nil {
		t.Fatal(err)
	}
}

// endsAs checks that the log ends with that entry.
func endsAs(t *testing.T, l *segmentLog, want *raft.Log) {
	t.Helper()
	last, err := l.LastIndex()
	if err != nil || last != want.Index {
		t.Fatalf("the log ends at entry %d, want %d: %v", last, want.Index, err)
	}
	var e raft.Log
	if err := l.GetLog(last, &e); err != nil || e.Term != want.Term || !bytes.Equal(e.Data, want.Data) {
		t.Errorf("entry %d is of term %d with %d bytes, want term %d and %d bytes as written: %v", last, e.Term, len(e.Data), want.Term, len(want.Data), err)
	}
}

// A follower that is sent again what it has answers for it without storing it: what a start finds must be on the disk.
func TestSegmentLog_hasOnTheDiskWhatAStartFound(t *testing.T) {
	for name, sync := range map[string]func(*cachedFile) error{"killed before the sync": ends, "killed when a sync had failed": dropsAndEnds} {
		t.Run(name, func(t *testing.T) {
			dir, disk := t.TempDir(), newCachedDisk(t)
			l := openSettled(t, dir, disk)
			for i := range uint64(3) {
				store(t, l, randomEntry(i+1, 1, 2000))
			}
			last := randomEntry(5, 1, 5000)
			disk.sync = sync
			store(t, l, randomEntry(4, 1, 5000), last) // nobody is told
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			disk.sync = (*cachedFile).write
			l = openSettled(t, dir, disk)
			endsAs(t, l, last)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			disk.losePower(t, dir)
			endsAs(t, openSettled(t, dir, disk), last)
		})
	}
}

// What is left of an append that failed would lie behind the next one, if that is shorter, and pass for damage at the next start.
func TestSegmentLog_takesBackAnAppendThatFailed(t *testing.T) {
	for _, size := range []int{100, 500, 1000, 3000, 30_000} { // the last fills the segment
		dir, disk := t.TempDir(), newCachedDisk(t)
		l := openSettled(t, dir, disk)
		first := randomEntry(1, 1, 200)
		store(t, l, first)
		before, err := os.ReadFile(tailOf(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		batch := []*raft.Log{randomEntry(2, 1, size), randomEntry(3, 1, size), randomEntry(4, 1, size)}
		disk.inTurn(fails)
		if err := l.StoreLogs(batch); !errors.Is(err, syscall.EIO) {
			t.Fatalf("stored with %v", err)
		}
		if after, err := os.ReadFile(tailOf(t, dir)); err != nil || !bytes.Equal(bytes.TrimRight(after, "\x00"), bytes.TrimRight(before, "\x00")) {
			t.Errorf("size %d: the tail has something of what failed: %v", size, err)
		}
		disk.inTurn(failsAndRefuses) // so that it cannot be taken back at once
		if err := l.StoreLogs(batch); !errors.Is(err, syscall.EIO) {
			t.Fatalf("stored with %v", err)
		}
		disk.refuses = false
		shorter := randomEntry(2, 2, 10)
		store(t, l, shorter)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		disk.losePower(t, dir)
		endsAs(t, openSettled(t, dir, disk), shorter)
	}
}

// An append fails and cannot be taken back, then a cut fails, so that the log is opened anew.
func TestSegmentLog_takesBackAnAppendThatFailedBeforeItIsOpenedAnew(t *testing.T) {
	dir, disk := t.TempDir(), newCachedDisk(t)
	l := openSettled(t, dir, disk)
	for i := range uint64(8) {
		store(t, l, randomEntry(i+1, 1, 1000))
	}
	disk.inTurn(failsAndRefuses)
	if err := l.StoreLogs([]*raft.Log{randomEntry(9, 1, 100), randomEntry(10, 1, 100)}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("stored with %v", err)
	}
	if err := l.meta.BoltMetaDB.Close(); err != nil { // opened again by Load
		t.Fatal(err)
	}
	if err := l.DeleteRange(1, 3); err == nil {
		t.Fatal("cut though it could not be recorded")
	}
	next := randomEntry(9, 2, 50)
	if err := l.StoreLog(next); !errors.Is(err, syscall.EIO) {
		t.Errorf("stored with %v", err)
	}
	if last, err := l.LastIndex(); err != nil || last != 8 {
		t.Errorf("the log ends at entry %d, want 8: %v", last, err)
	}
	disk.refuses = false
	store(t, l, next)
	endsAs(t, l, next)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	endsAs(t, openSettled(t, dir, disk), next)
}

// The file in which it lies goes with the log that a snapshot replaces.
func TestSegmentLog_takesBackNothingInAFileThatIsGone(t *testing.T) {
	dir, disk := t.TempDir(), newCachedDisk(t)
	l := openSettled(t, dir, disk)
	store(t, l, randomEntry(1, 1, 1000))
	disk.inTurn(failsAndRefuses)
	if err := l.StoreLog(randomEntry(2, 1, 100)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("stored with %v", err)
	}
	if err := l.DeleteRange(1, 1); err != nil {
		t.Fatal(err)
	}
	disk.refuses = false
	next := randomEntry(9, 2, 50)
	store(t, l, next)
	endsAs(t, l, next)
}

// Power is lost in the middle of an append, and again in the middle of one that began where a shorter one ended. A
// start leaves out what nobody was told of; what is left of it must be neither damage at the next, nor the end of the second.
func TestSegmentLog_clearsWhatAPowerLossLeft(t *testing.T) {
	for size := 2400; size < 2560; size += 8 {
		dir := t.TempDir()
		l := openSettled(t, dir, walfs.New())
		first := randomEntry(1, 1, 200)
		store(t, l, first)
		cutOff(t, l, randomEntry(2, 1, size))

		l = openSettled(t, dir, walfs.New())
		endsAs(t, l, first)
		shorter := randomEntry(2, 2, 300+size%1500)
		store(t, l, shorter)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openSettled(t, dir, walfs.New())
		endsAs(t, l, shorter)
		cutOff(t, l, randomEntry(3, 2, 1900))

		l = openSettled(t, dir, walfs.New())
		endsAs(t, l, shorter)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSegmentLog_clearsWhatAPowerLossLeftOfTheFirstAppend(t *testing.T) {
	l := openSettled(t, t.TempDir(), walfs.New())
	cutOff(t, l, randomEntry(1, 1, 3000))
	l = openSettled(t, l.dir, walfs.New())
	if last, err := l.LastIndex(); err != nil || last != 0 {
		t.Fatalf("the log ends at entry %d: %v", last, err)
	}
	first := randomEntry(1, 2, 1000)
	store(t, l, first)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	endsAs(t, openSettled(t, l.dir, walfs.New()), first)
}

// Power is lost when the first sectors of an append are on the disk. Its body is records with a kind and a length in front, as
// many are: wherever it ends, it may end as a commit frame would.
func TestSegmentLog_startsAfterAnAppendOfWhichTheFirstSectorsAreThere(t *testing.T) {
	for skew := range 8 { // where in the log a body lies is chance
		l := openSettled(t, t.TempDir(), walfs.New())
		first := randomEntry(1, 1, 200)
		store(t, l, first)
		data := make([]byte, skew, 20_000)
		for i := uint32(0); len(data) < 19_900; i++ {
			data = binary.LittleEndian.AppendUint32(data, 1)
			data = binary.LittleEndian.AppendUint32(data, 40+i%8)
			data = append(data, make([]byte, 56)...)
		}
		before, after := storeAndClose(t, l, randomEntry(2, 1, 300), &raft.Log{Index: 3, Term: 1, Data: data})
		for at := (firstChange(before, after)/sector + 2) * sector; at < lastByte(after); at += 3 * sector {
			torn := bytes.Clone(after)
			clear(torn[at:])
			if err := os.WriteFile(tailOf(t, l.dir), torn, 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := openSegmentLog(l.dir, settledSize, quiet(), walfs.New())
			if err != nil {
				t.Fatalf("skew %d, cut off at byte %d: %v", skew, at, err)
			}
			endsAs(t, again, first)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A body has in it what an append looks like, at each place that it may have there. Power is lost in the middle of the append that brings it.
func TestSegmentLog_takesNoBodyForAnAppend(t *testing.T) {
	for missing, entry := range []string{"\xff\xff\x7f45678", "\x032345678"} { // which of its sectors; an index that is wrong, and one that is right
		l := openSettled(t, t.TempDir(), walfs.New())
		first := randomEntry(1, 1, 200)
		store(t, l, first)
		frame := func(kind, value uint32) []byte {
			return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, kind), value)
		}
		fake := append(frame(walEntryFrame, 8), entry...)
		sum := crc32.Checksum(fake, crc32.MakeTable(crc32.Castagnoli))
		fake = append(append(frame(walCommitFrame, 7), fake...), frame(walCommitFrame, sum)...)
		e := randomEntry(2, 1, 20_000)
		for skew := range 8 {
			copy(e.Data[12_000+80*skew+skew:], fake)
		}
		before, after := storeAndClose(t, l, e)
		begin := firstChange(before, after)
		clear(after[max(begin, (begin/sector+missing)*sector) : (begin/sector+missing+1)*sector])
		if err := os.WriteFile(tailOf(t, l.dir), after, 0o600); err != nil {
			t.Fatal(err)
		}
		endsAs(t, openSettled(t, l.dir, walfs.New()), first)
	}
}

// storeAndClose returns what the only segment holds before and after.
func storeAndClose(t *testing.T, l *segmentLog, entries ...*raft.Log) (before, after []byte) {
	t.Helper()
	path := tailOf(t, l.dir)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	store(t, l, entries...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return before, after
}

func firstChange(before, after []byte) (at int) {
	for before[at] == after[at] {
		at++
	}
	return at
}

// cutOff appends an entry of which one sector does not reach the disk, and closes the log.
func cutOff(t *testing.T, l *segmentLog, e *raft.Log) {
	t.Helper()
	before, after := storeAndClose(t, l, e)
	at := (firstChange(before, after) + 100 + sector - 1) / sector * sector
	clear(after[at : at+sector])
	if err := os.WriteFile(tailOf(t, l.dir), after, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tailOf returns the path of the only segment.
func tailOf(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*-*.wal"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	return paths[0]
}
