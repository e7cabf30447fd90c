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
