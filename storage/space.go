package storage

import (
	"fmt"

	"github.com/carillonmq/carillon/storage/disk"
)

// FreeSpace returns the bytes that this process may still write to the store's
// file system.
func (s *Store) FreeSpace() (uint64, error) {
	return disk.Free(s.manifest.dir)
}

// spareRoom stays free whatever is merged or received: the manifest must be able
// to grow, the log to go on, and a flush to shorten it.
const spareRoom = 16 << 20

// checkRoom returns ErrDiskFull unless need bytes are free: what is known to fail
// is not written first.
func (s *Store) checkRoom(need int64) error {
	free, err := s.FreeSpace()
	if err != nil {
		return err
	}
	if free < uint64(need) {
		return fmt.Errorf("%w: %s has %d bytes free, %d are needed; make room or enlarge it", ErrDiskFull, s.manifest.dir, free, need)
	}
	return nil
}
