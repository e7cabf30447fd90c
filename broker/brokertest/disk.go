package brokertest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/disk"
)

// A logDisk is the disk under the segments of a node's Raft log, which are real files. It can be
// slow, full, and lose what was not synced when its node is killed. What bbolt writes cannot be
// put on anything but a real file: of a full disk the schedule sees only that there is no room, and
// what is slow there is waited for around it (pause).
type logDisk struct {
	types.VFS
	mu       sync.Mutex
	ordinary time.Duration // that a sync takes while all is well; set before the node starts
	slow     time.Duration // that it takes now, if that is longer
	full     bool
	relieved time.Time // when it was full no more
	room     int64     // bytes that were given back since it is full
	reserved bool      // the log's reserve was there when it was last looked at
	torn     bool
	unsynced []overwritten // in the order of the writes
	lost     int           // how many of them were put back

	written atomic.Int64 // counts the schedule's files, which are written otherwise
}

// overwritten is what a write that is not synced has taken the place of.
type overwritten struct {
	path   string
	at     int64
	before []byte
}

func newLogDisk() *logDisk { return &logDisk{VFS: fs.New()} }

// restart forgets what an earlier life has written.
func (d *logDisk) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsynced = nil
}

func (d *logDisk) isWell() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow == 0 && !d.full && !d.torn
}

func (d *logDisk) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// wasFull reports whether the disk was full a moment ago: a flush that has failed is tried again after a second, and until
// then the node holds it against the disk.
func (d *logDisk) wasFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.relieved) < 2*time.Second
}

// isSlow reports whether syncs take longer than so much, which is ordinary.
func (d *logDisk) isSlow(ordinary time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow > ordinary
}

// change sets one of the faults, or ends all.
func (d *logDisk) change(set func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.full
	set()
	d.room = 0
	if was && !d.full {
		d.relieved = time.Now()
	}
}

// free is what node.Config.FreeSpace asks.
func (d *logDisk) free(dir string) (uint64, error) {
	d.mu.Lock()
	full := d.full
	d.mu.Unlock()
	if full {
		return 0, nil
	}
	return disk.Free(dir)
}

// takes returns how long a sync takes now. The caller holds mu.
func (d *logDisk) takes() time.Duration { return max(d.slow, d.ordinary) }

// Create fails when the disk is full, unless as much was deleted since: the log gives up its
// reserve for that.
func (d *logDisk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	d.mu.Lock()
	if d.full {
		_, err := os.Stat(filepath.Join(dir, "reserve"))
		if err != nil && d.reserved {
			d.room += 2 * int64(size) // it is a little larger than a segment
		}
		d.reserved = err == nil
		if d.room < int64(size) {
			d.mu.Unlock()
			return nil, &os.PathError{Op: "create", Path: filepath.Join(dir, name), Err: syscall.ENOSPC}
		}
		d.room = 0
	}
	d.mu.Unlock()
	file, err := d.VFS.Create(dir, name, size)
	return d.wrap(file, filepath.Join(dir, name), err)
}

func (d *logDisk) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := d.VFS.OpenWriter(dir, name)
	return d.wrap(file, filepath.Join(dir, name), err)
}

// Delete makes room for one segment.
func (d *logDisk) Delete(dir, name string) error {
	info, err := os.Stat(filepath.Join(dir, name))
	if err == nil {
		d.mu.Lock()
		d.room += info.Size()
		d.mu.Unlock()
	}
	return d.VFS.Delete(dir, name)
}

func (d *logDisk) wrap(file types.WritableFile, path string, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return &logFile{file, d, path}, nil
}

// sector is what a disk writes whole or not at all.
const sector = 512

// tear puts back in the image of a directory what was not synced, but for the sectors in the first half of
// the first write, which is torn.
func (d *logDisk) tear(image, dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.torn {
		return nil
	}
	d.lost += len(d.unsynced)
	for i, w := range slices.Backward(d.unsynced) {
		rest, err := filepath.Rel(dir, w.path)
		if err != nil {
			return err
		}
		if i == 0 {
			half := w.at + int64(len(w.before)/2)
			kept := max(0, half/sector*sector-w.at)
			w.at, w.before = w.at+kept, w.before[kept:]
		}
		file, err := os.OpenFile(filepath.Join(image, rest), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(w.before, w.at)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// A logFile is a segment that is written.
type logFile struct {
	types.WritableFile
	disk *logDisk
	path string
}

func (f *logFile) WriteAt(b []byte, at int64) (int, error) {
	before := make([]byte, len(b))
	_, _ = f.ReadAt(before, at) // beyond the end there are zeros
	n, err := f.WritableFile.WriteAt(b, at)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.unsynced = append(f.disk.unsynced, overwritten{f.path, at, before[:n]})
	return n, err
}

func (f *logFile) Sync() error {
	f.disk.mu.Lock()
	takes := f.disk.takes()
	begun := len(f.disk.unsynced)
	f.disk.mu.Unlock()
	if takes > 0 {
		time.Sleep(takes)
	}
	err := f.WritableFile.Sync()
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err == nil && begun <= len(f.disk.unsynced) {
		synced := f.disk.unsynced[:begun]
		later := f.disk.unsynced[begun:]
		synced = slices.DeleteFunc(synced, func(w overwritten) bool { return w.path == f.path })
		f.disk.unsynced = slices.Concat(synced, later)
	}
	return err
}

// What bbolt reads and writes is in real files. What that takes on the node's disk is taken around it.

// pause takes as long as so many syncs do, but not longer than the disk is slow or the node runs.
func (n *node) pause(syncs time.Duration) {
	for began := time.Now(); ; {
		n.files.mu.Lock()
		left := time.Until(began.Add(syncs * n.files.takes()))
		n.files.mu.Unlock()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(left, time.Second))
		select {
		case <-timer.C:
		case <-n.ending():
			timer.Stop()
			return
		}
	}
}

// syncsOfFile is how often a file of the schedule is synced until the manifest names it, with its
// directory and the manifest.
const syncsOfFile = 4

// A slowStore reads pages ahead as slowly as the disk is. What an ordinary one has is in memory already.
type slowStore struct {
	schedule.Store
	node *node
}

func (s slowStore) Scan(from, to storage.Ref, most int, keep storage.Filter, out []storage.Item) ([]storage.Item, storage.Ref, bool, error) {
	if s.node.files.isSlow(ordinarySync) {
		s.node.pause(1)
	}
	return s.Store.Scan(from, to, most, keep, out)
}
