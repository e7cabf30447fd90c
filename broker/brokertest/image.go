package brokertest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carillonmq/carillon/storage/disk"
)

// copySparse copies a directory to a new one, and writes no zeros: most of a log's segment is
// room that was allocated and not used.
func copySparse(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, rest), 0o700)
		}
		return copyFile(filepath.Join(to, rest), path)
	})
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() // only read
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}

// Scratch returns a directory in memory, where a sync costs nothing, or nothing if the system has none
// with room for the disks of some clusters. In virtual time a real disk is only waited for: what a power
// cut leaves of one is played (disk.go).
func Scratch() string {
	const memory, room = "/dev/shm", 1 << 30
	if free, err := disk.Free(memory); err != nil || free < room {
		return ""
	}
	return memory
}
