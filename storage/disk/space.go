package disk

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Free returns the bytes that this process may still write to the file system of dir.
func Free(dir string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// MarkFull wraps an error that room on the disk would cure in ErrFull, and returns any
// other as it is.
func MarkFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
