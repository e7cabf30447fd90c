package raftlog

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// A smallDisk has room for so many bytes in one directory.
type smallDisk struct {
	types.VFS
	dir  string
	mu   sync.Mutex
	size int64
	open int // files
}

func newSmallDisk(dir string) *smallDisk { return &smallDisk{VFS: fs.New(), dir: dir, size: 1 << 40} }

// fill leaves no room, empty as much as one wants.
func (d *smallDisk) fill()  { d.grow(-d.free()) }
func (d *smallDisk) empty() { d.grow(1 << 40) }

func (d *smallDisk) grow(by int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size += by
}

func (d *smallDisk) free() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	files, _ := os.ReadDir(d.dir)
	free := d.size
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			free -= info.Size()
		}
	}
	return free
}

func (d *smallDisk) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
}

func (d *smallDisk) opened() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Create leaves half a file behind when there is no room for all of it.
func (d *smallDisk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	free := d.free()
	if free >= int64(size) {
		return d.writable(d.VFS.Create(dir, name, size))
	}
	f, err := d.VFS.Create(dir, name, uint64(max(free, 0)))
	if err == nil {
		err = f.Close()
	}
	return nil, errors.Join(err, &os.PathError{Op: "create", Path: name, Err: syscall.ENOSPC})
}

func (d *smallDisk) OpenWriter(dir, name string) (types.WritableFile, error) {
	return d.writable(d.VFS.OpenWriter(dir, name))
}

func (d *smallDisk) writable(f types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	d.count(1)
	return &smallFile{WritableFile: f, disk: d}, nil
}

func (d *smallDisk) OpenReader(dir, name string) (types.ReadableFile, error) {
	f, err := d.VFS.OpenReader(dir, name)
	if err != nil {
		return nil, err
	}
	d.count(1)
	return &countedFile{ReadableFile: f, disk: d}, nil
}

type countedFile struct {
	types.ReadableFile
	disk *smallDisk
}

func (f *countedFile) Close() error {
	f.disk.count(-1)
	return f.ReadableFile.Close()
}

type smallFile struct {
	types.WritableFile
	disk *smallDisk
}

func (f *smallFile) Close() error {
	f.disk.count(-1)
	return f.WritableFile.Close()
}

// WriteAt writes what fits, as a file system does.
func (f *smallFile) WriteAt(b []byte, at int64) (int, error) {
	info, err := f.WritableFile.(interface{ Stat() (os.FileInfo, error) }).Stat()
	if err != nil {
		return 0, err
	}
	room := info.Size() + f.disk.free() - at
	if int64(len(b)) <= room {
		return f.WritableFile.WriteAt(b, at)
	}
	n, err := f.WritableFile.WriteAt(b[:max(room, 0)], at)
	return n, errors.Join(err, syscall.ENOSPC)
}

func openTestSegmentLog(t *testing.T, dir string, vfs types.VFS) *segmentLog {
	t.Helper()
	l, err := openSegmentLog(dir, testSegmentSize, quiet(), vfs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// holds checks that the log has the entries from first to last, and takes the next.
func holds(t *testing.T, l raft.LogStore, first, last uint64) uint64 {
	t.Helper()
	if got, _ := l.FirstIndex(); got != first {
		t.Errorf("the log begins at %d, want %d", got, first)
	}
	if got, _ := l.LastIndex(); got != last {
		t.Errorf("the log ends at %d, want %d", got, last)
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil || e.Index != i || len(e.Data) == 0 || e.Data[0] != 'a'+byte(i%26) {
			t.Fatalf("entry %d of %d: %d with %.5q, %v", i, last, e.Index, e.Data, err)
		}
	}
	if err := l.StoreLog(entry(last+1, 10)); err != nil {
		t.Fatalf("the next entry: %v", err)
	}
	return last + 1
}

// appendUntilFull appends until an append fails, and returns the last one that did not.
func appendUntilFull(t *testing.T, l *segmentLog, from uint64, size int) uint64 {
	t.Helper()
	for i := from; i < from+100; i++ {
		if err := l.StoreLog(entry(i, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("append %d: %v, want no space left", i, err)
			}
			return i - 1
		}
	}
	t.Fatal("the disk never got full")
	return 0
}

// There is no room for the end of a segment, or for its end but not for the next.
func TestSegmentLog_goesOnWhenThereIsRoomAgain(t *testing.T) {
	for _, room := range []int64{0, 100, testSegmentSize} {
		dir := t.TempDir()
		disk := newSmallDisk(dir)
		l := openTestSegmentLog(t, dir, disk)
		disk.fill()
		disk.grow(room)
		const third = testSegmentSize / 3
		last := appendUntilFull(t, l, 1, third)
		if last < 6 {
			t.Errorf("%d bytes free: %d entries, want 3 in the segment and 3 in the reserve", room, last)
		}
		before := disk.opened()
		for range 50 {
			if err := l.StoreLog(entry(last+1, third)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("append to a full disk: %v", err)
			}
		}
		if got := disk.opened(); got != before {
			t.Errorf("%d files open after 50 more attempts, %d before", got, before)
		}
		disk.empty()
		last = holds(t, l, 1, last)
		for range 3 {
			last++
			if err := l.StoreLog(entry(last, third)); err != nil {
				t.Fatal(err)
			}
		}
		last = holds(t, l, 1, last)
		if info, err := os.Stat(filepath.Join(dir, reserveFile)); err != nil || info.Size() != reserveOf(testSegmentSize) {
			t.Errorf("the reserve is not made again: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := disk.opened(); got != 0 {
			t.Errorf("%d files open after Close", got)
		}
		holds(t, openTestSegmentLog(t, dir, disk), 1, last)
	}
}

// The rotation fails before the next segment has a name.
func TestSegmentLog_goesOnAfterARotationThatWasNotRecorded(t *testing.T) {
	l := openTestSegmentLog(t, t.TempDir(), fs.New())
	if err := l.meta.BoltMetaDB.Close(); err != nil { // opened again by Load
		t.Fatal(err)
	}
	if err := l.StoreLog(entry(1, testSegmentSize)); err != nil {
		t.Fatal(err)
	}
	holds(t, l, 1, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, openTestSegmentLog(t, l.dir, fs.New()), 1, 2)
}

// Only a cut gives room here.
func TestSegmentLog_isCutWhileTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	disk := newSmallDisk(dir)
	l := openTestSegmentLog(t, dir, disk)
	disk.fill()
	disk.grow(2 * testSegmentSize)
	last := appendUntilFull(t, l, 1, testSegmentSize/3)
	if err := l.DeleteRange(1, last-1); err != nil {
		t.Fatal(err)
	}
	last = holds(t, l, last, last)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, openTestSegmentLog(t, dir, disk), last-1, last)
}

// What is cut lies in the last file, which stays.
func TestSegmentLog_findsNothingThatIsCut(t *testing.T) {
	l := openTestSegmentLog(t, t.TempDir(), fs.New())
	for i := range uint64(5) {
		if err := l.StoreLog(entry(i+1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.DeleteRange(1, 3); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for index, want := range map[uint64]error{1: raft.ErrLogNotFound, 3: raft.ErrLogNotFound, 4: nil, 5: nil, 6: raft.ErrLogNotFound} {
			if err := l.GetLog(index, new(raft.Log)); !errors.Is(err, want) {
				t.Errorf("entry %d: %v, want %v", index, err, want)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openTestSegmentLog(t, l.dir, fs.New())
	}
}

func TestSegmentLog_goesOnAfterACutThatFailed(t *testing.T) {
	for _, tt := range []struct {
		name                          string
		from, to, wantFirst, wantLast uint64
		appends                       bool // before the next attempt
	}{
		{"of its beginning", 1, 4, 5, 10, true},
		{"of its end", 6, 9, 1, 5, false},
	} {
		l := openTestSegmentLog(t, t.TempDir(), fs.New())
		for i := range uint64(8) {
			if err := l.StoreLog(entry(i+1, testSegmentSize/5)); err != nil {
				t.Fatal(err)
			}
		}
		last := holds(t, l, 1, 8)
		if err := l.meta.BoltMetaDB.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.DeleteRange(tt.from, tt.to); err == nil {
			t.Fatalf("%s: cut though it could not be recorded", tt.name)
		}
		if tt.appends {
			holds(t, l, 1, last)
		}
		if err := l.DeleteRange(tt.from, tt.to); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		holds(t, l, tt.wantFirst, tt.wantLast)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		holds(t, openTestSegmentLog(t, l.dir, fs.New()), tt.wantFirst, tt.wantLast+1)
	}
}

// The append that fills a segment writes beyond what was allocated: on a full disk
// its first part is written, and the process may end before it is tried again.
func TestSegmentLog_takesBackASealThatWasCutShort(t *testing.T) {
	for size := testSegmentSize/3 - 60; size < testSegmentSize/3+20; size += 4 {
		dir := t.TempDir()
		disk := newSmallDisk(dir)
		l := openTestSegmentLog(t, dir, disk)
		if err := os.Remove(filepath.Join(dir, reserveFile)); err != nil {
			t.Fatal(err)
		}
		disk.fill()
		last := appendUntilFull(t, l, 1, size)
		disk.empty()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again := openTestSegmentLog(t, l.dir, disk)
		holds(t, again, 1, last)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		holds(t, openTestSegmentLog(t, l.dir, disk), 1, last+1)
	}
}

// A seal of which a sector did not reach the disk before a power loss.
func TestSegmentLog_takesBackASealWithAWrongSum(t *testing.T) {
	l := openTestSegmentLog(t, t.TempDir(), fs.New())
	if err := l.StoreLog(entry(1, 100)); err != nil {
		t.Fatal(err)
	}
	if err := l.meta.BoltMetaDB.Close(); err != nil { // so that the rotation is not recorded
		t.Fatal(err)
	}
	if err := l.StoreLog(entry(2, testSegmentSize)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(l.dir, "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("%v, %v", segments, err)
	}
	f, err := os.OpenFile(segments[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 512), 4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, openTestSegmentLog(t, l.dir, fs.New()), 1, 1)
}
