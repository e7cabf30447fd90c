package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FreeSpace returns the bytes that this process may still write to the store's
// file system.
func (s *Store) FreeSpace() (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(s.manifest.dir, &stat); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", s.manifest.dir, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// spareRoom stays free whatever is merged or received: the manifest must be able
// to grow, and the log to go on.
const spareRoom = 16 << 20

func (s *Store) checkRoom(need int64) error {
	free, err := s.FreeSpace()
	if err != nil {
		return err
	}
	if want := uint64(need) + spareRoom; free < want {
		return fmt.Errorf("%w: %s has %d bytes free, %d are needed; make room or enlarge it", ErrDiskFull, s.manifest.dir, free, want)
	}
	return nil
}
