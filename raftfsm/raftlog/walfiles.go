package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/carillonmq/carillon/storage/disk"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/types"
)

// reserveFile lies beside the segments and is a little larger than one. It is given
// up when the disk is full, for the end of the present segment and for the next, so
// that acks and claims go on, whose flushes make room. It is made again when there
// is some. Raft-wal looks at *.wal only.
const reserveFile = "reserve"

// reserveOf returns how large the reserve of segments of size bytes is: the append
// that fills one goes a little beyond what was allocated for it.
func reserveOf(size int) int64 { return int64(size) + int64(size)/64 + 4096 }

// walFiles are the files of raft-wal's segments.
type walFiles struct {
	types.VFS
	dir     string
	reserve int64 // bytes
	logger  hclog.Logger

	mu     sync.Mutex
	opened []io.Closer // while a log is being opened, nil otherwise
	failed *walFile    // that has an append to be taken back, nil if none has
}

// Create makes a segment whole or not at all: the name of half a one would be
// taken at the next attempt.
func (f *walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	w, err := f.create(dir, name, size)
	if f.giveUpReserve(err) {
		w, err = f.create(dir, name, size)
	} else if err == nil {
		f.keepReserve()
	}
	return f.noteWriter(w, err)
}

// giveUpReserve reports whether there is more room now than there was for err.
func (f *walFiles) giveUpReserve(err error) bool {
	if !errors.Is(err, syscall.ENOSPC) || os.Remove(filepath.Join(f.dir, reserveFile)) != nil {
		return false
	}
	f.logger.Warn("disk full: the log goes on in its reserve", "bytes", f.reserve)
	return true
}

func (f *walFiles) create(dir, name string, size uint64) (types.WritableFile, error) {
	w, err := f.VFS.Create(dir, name, size)
	if err != nil && !errors.Is(err, os.ErrExist) {
		_ = os.Remove(filepath.Join(dir, name)) // may never have been there
	}
	return w, err
}

// Delete leaves room, perhaps for the reserve.
func (f *walFiles) Delete(dir, name string) error {
	err := f.VFS.Delete(dir, name)
	f.keepReserve()
	return err
}

func (f *walFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	r, err := f.VFS.OpenReader(dir, name)
	return note(f, r, err)
}

func (f *walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	return f.noteWriter(f.VFS.OpenWriter(dir, name))
}

// keepReserve makes the reserve if it is not there, or is of another size.
func (f *walFiles) keepReserve() {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := filepath.Join(f.dir, reserveFile)
	if info, err := os.Stat(path); err == nil && info.Size() == f.reserve {
		return
	}
	_ = os.Remove(path) // else it cannot be made, which says why
	w, err := f.create(f.dir, reserveFile, uint64(f.reserve))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		f.logger.Warn("no room to keep one log segment in reserve", "error", err)
	}
}

// open runs what opens a log, and closes the files that it has opened when it
// fails: raft-wal leaves them open, and a full disk has it fail again and again.
func (f *walFiles) open(log func() error) error {
	f.mu.Lock()
	f.opened = []io.Closer{}
	f.mu.Unlock()
	err := log()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		for _, c := range f.opened {
			_ = c.Close() // some are closed already
		}
	}
	f.opened = nil
	return err
}

func (f *walFiles) noteWriter(w types.WritableFile, err error) (types.WritableFile, error) {
	w, err = note(f, w, err)
	if err != nil {
		return nil, err
	}
	return &walFile{WritableFile: w, files: f}, nil
}

// A walFile is a segment that is written: by one goroutine, which syncs each append before it writes the next.
// One that fails is taken back, and nothing is written before it is: raft-wal writes the next to its place, and
// what is left of it behind that would not look like the end of a log (walMeta.settle).
type walFile struct {
	types.WritableFile
	files    *walFiles
	from, to int64 // what was written since the last sync
}

func (w *walFile) WriteAt(b []byte, at int64) (int, error) {
	if err := w.files.takeBack(); err != nil {
		return 0, err
	}
	n, err := w.write(b, at)
	if w.files.giveUpReserve(err) {
		n, err = w.write(b, at)
	}
	return n, w.note(err)
}

func (w *walFile) write(b []byte, at int64) (int, error) {
	n, err := w.WritableFile.WriteAt(b, at)
	if w.to == 0 {
		w.from = at
	}
	w.from, w.to = min(w.from, at), max(w.to, at+int64(n))
	return n, err
}

func (w *walFile) Sync() error {
	err := w.WritableFile.Sync()
	if err == nil {
		w.from, w.to = 0, 0
	}
	return w.note(err)
}

// note takes back what was written since the last sync, if err is an error, and returns err. It is tried again before the
// next write.
func (w *walFile) note(err error) error {
	if err == nil {
		return nil
	}
	w.files.setFailed(w)
	if again := w.files.takeBack(); again != nil {
		w.files.logger.Debug("the log is not yet as it was", "error", again)
	}
	return err
}

// takeBack takes an append back that failed and was not yet. Of all files only the newest is written, so there is one at most.
func (f *walFiles) takeBack() error {
	f.mu.Lock()
	w := f.failed
	f.mu.Unlock()
	if w == nil {
		return nil
	}
	if err := w.takeBack(); err != nil {
		return fmt.Errorf("take back an append that failed: %w", err)
	}
	f.setFailed(nil)
	return nil
}

// Close forgets what is not taken back: raft-wal closes a file that is written with the log, or to remove it.
func (w *walFile) Close() error {
	w.files.mu.Lock()
	if w.files.failed == w {
		w.files.failed = nil
	}
	w.files.mu.Unlock()
	return w.WritableFile.Close()
}

func (f *walFiles) setFailed(w *walFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = w
}

func (w *walFile) takeBack() error {
	if err := clearBytes(w.WritableFile, w.from, w.to-w.from); err != nil {
		return err
	}
	// The file may be new, and raft-wal syncs its name no more if that is what failed.
	if err := cmp.Or(w.WritableFile.Sync(), disk.SyncDir(w.files.dir)); err != nil {
		return err
	}
	w.from, w.to = 0, 0
	return nil
}

func note[F io.Closer](f *walFiles, file F, err error) (F, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		var none F
		return none, fmt.Errorf("log segment: %w", err)
	}
	if f.opened != nil {
		f.opened = append(f.opened, file)
	}
	return file, nil
}
