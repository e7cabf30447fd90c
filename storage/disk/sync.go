package disk

import (
	"fmt"
	"os"
	"path/filepath"
)

// SyncFile makes durable what the file holds, whoever wrote it, and its name.
func SyncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync file: %w", err)
	}
	defer f.Close() // only read
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync file: %w", MarkFull(err))
	}
	return SyncDir(filepath.Dir(path))
}

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
