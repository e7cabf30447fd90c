package disk

import (
	"fmt"
	"os"
)

// SyncDir makes the names in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close() // only read
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", MarkFull(err))
	}
	return nil
}
