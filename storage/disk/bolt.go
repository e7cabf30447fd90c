// Package disk has what every file here needs of the disk: bbolt files that may be
// damaged, durable names, room.
package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/carillonmq/carillon/storage/codec"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// OpenBolt opens a file that exists. On damaged pages bbolt panics and leaves the
// file mapped, and by that locked even when closed: it is unlocked here. The error is
// the system's, or wraps codec.ErrCorrupt or ErrInUse.
func OpenBolt(path string, options *bbolt.Options) (db *bbolt.DB, err error) {
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		opened, err := os.OpenFile(name, flag, mode)
		file = opened
		return opened, err
	}
	err = Guard(func() error {
		db, err = bbolt.Open(path, 0o600, options)
		return err
	})
	if err != nil && file != nil {
		// Both fail when bbolt has closed it.
		_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
		_ = file.Close()
	}
	var system syscall.Errno
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	case errors.As(err, &system), errors.Is(err, codec.ErrCorrupt):
		return nil, err
	default: // bbolt's own: bad meta pages, too short
		return nil, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
}

// OpenCheckedBolt is OpenBolt of a file whose frame is checked, see CheckBolt, once it is
// locked. The error names the place of what is wrong, where that is known.
func OpenCheckedBolt(path string, metas int, options *bbolt.Options) (*bbolt.DB, error) {
	db, err := OpenBolt(path, options)
	if err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return nil, err
	}
	if damage := CheckBolt(path, metas); damage != nil {
		err = damage
	}
	if err == nil {
		return db, nil
	}
	if db != nil {
		err = errors.Join(err, db.Close())
	}
	return nil, err
}

// Guard turns what bbolt does on damaged pages (it panics, or touches memory
// beyond the file) into codec.ErrCorrupt. The stack in it tells damage from a mistake
// in this program.
func Guard(read func() error) (err error) {
	previous := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(previous)
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v\n%s", codec.ErrCorrupt, cause, debug.Stack())
		}
	}()
	return read()
}
