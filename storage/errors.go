package storage

import (
	"errors"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
)

var (
	// ErrCorrupt is returned when bytes on disk, or in a stream, are not what
	// was written. Nothing was changed.
	ErrCorrupt = codec.ErrCorrupt

	// ErrVersion is returned when a file or stream was written in a format that
	// this program does not know.
	ErrVersion = codec.ErrVersion

	// ErrDiskFull is returned when the disk has no room. Nothing was changed:
	// the same call succeeds once there is room.
	ErrDiskFull = disk.ErrFull

	// ErrInUse is returned by Open when another process holds the directory.
	ErrInUse = disk.ErrInUse

	// ErrGeneration is returned by a flush, merge or stream that was begun
	// before a received snapshot took the schedule's place.
	ErrGeneration = errors.New("storage: the schedule was replaced by a received snapshot meanwhile")

	// ErrPast is returned for a received snapshot that ends before the schedule
	// on disk does: the log in between may be gone.
	ErrPast = errors.New("storage: the received snapshot is older than the schedule")

	// ErrFlushing is returned by the flush of a Frozen that was taken while
	// another one was neither flushed nor released.
	ErrFlushing = errors.New("storage: another flush is under way")

	// ErrClosed is returned by every call that needs the disk after Close.
	ErrClosed = errors.New("storage: closed")

	// ErrFailed is returned once the manifest could neither be written nor read
	// back: what is on disk is unknown, and the process must be restarted.
	ErrFailed = errors.New("storage: the manifest failed, restart the node")
)
