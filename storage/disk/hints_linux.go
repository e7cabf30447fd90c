package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// StartWriteback lets the kernel write to disk what the file has by now, so that
// the sync at its end has little left to wait for. It is a hint: an error of the
// disk is the sync's to report.
func StartWriteback(file *os.File) {
	_ = unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// ReadAhead lets the kernel read so many bytes of the file from the disk at once, before they are looked at: what
// bbolt shows of a file is read a page at a time. It is a hint: an error of the disk is told by who reads.
func ReadAhead(file *os.File, offset, length int64) {
	_ = unix.Fadvise(int(file.Fd()), offset, length, unix.FADV_WILLNEED)
}
