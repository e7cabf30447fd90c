package alive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
)

// A Dir is the directory of a store's alive-sets, a file for each: the one that
// the manifest names, and one more while that is about to be replaced.
type Dir struct{ Path string }

// Ext is how the names of files end, after 16 hex digits.
const Ext = ".set"

// ErrSync is returned when a sync failed: nobody knows what of the file is on disk.
var ErrSync = errors.New("alive-set: sync failed")

// PathOf returns where the file with this id is.
func (d Dir) PathOf(id uint64) string {
	return filepath.Join(d.Path, fmt.Sprintf("%016x%s", id, Ext))
}

// Make makes the directory, durably, if it is not there.
func (d Dir) Make() error {
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return disk.SyncDir(filepath.Dir(d.Path))
}

// Write writes a set into a file of its own, which has no changes, and makes it and
// its name durable. next is the seq after the last that the set was told of. pace, if
// any, is asked before each piece. It blocks for the sync. After an error there is no
// file.
func (d Dir) Write(id uint64, set *Set, next uint64, pace func(n int) error) (File, error) {
	f := File{ID: id, Count: set.count, Next: next}
	if err := d.Make(); err != nil {
		return f, fmt.Errorf("write alive-set: %w", disk.MarkFull(err))
	}
	file, err := os.OpenFile(d.PathOf(id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return f, fmt.Errorf("write alive-set: %w", disk.MarkFull(err))
	}
	for piece := range set.basePieces() {
		if pace != nil {
			err = pace(len(piece))
		}
		if err == nil {
			_, err = file.Write(piece)
		}
		if err != nil {
			break
		}
		f.Base += int64(len(piece))
	}
	f.Size = f.Base
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = disk.SyncDir(d.Path)
	}
	if err != nil {
		return f, fmt.Errorf("write alive-set: %w", disk.MarkFull(errors.Join(err, os.Remove(d.PathOf(id)))))
	}
	return f, nil
}

// Append writes changes beyond the end that f tells of and makes them durable. It
// returns ErrSync when nobody knows whether they are: then nothing may be appended
// any more. f still tells of what was there before.
func (d Dir) Append(f File, changes []byte) error {
	file, err := os.OpenFile(d.PathOf(f.ID), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("change alive-set: %w", err)
	}
	if _, err = file.WriteAt(changes, f.Size); err == nil {
		if err = file.Sync(); err != nil {
			err = fmt.Errorf("%w: %w", ErrSync, err)
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("change alive-set: %w", disk.MarkFull(err))
	}
	return nil
}

// ChangesSince returns what f has gained since it was as then.
func (d Dir) ChangesSince(then, f File) ([]byte, error) {
	file, err := os.Open(d.PathOf(f.ID))
	if err != nil {
		return nil, fmt.Errorf("read changes of alive-set: %w", err)
	}
	defer file.Close() // only read
	changes := make([]byte, f.Size-then.Size)
	if _, err := file.ReadAt(changes, then.Size); err != nil {
		return nil, fmt.Errorf("read changes of alive-set: %w", err)
	}
	return changes, nil
}

// Remove removes the file with this id. That its name is gone is not durable.
func (d Dir) Remove(id uint64) error { return os.Remove(d.PathOf(id)) }

// Load reads the set that f tells of, and compares all with it. The error wraps
// codec.ErrCorrupt when the file is not as it was written.
func (d Dir) Load(f File) (*Set, error) {
	set, err := d.read(f)
	var damage *codec.Damage
	switch {
	case errors.As(err, &damage):
		return nil, &codec.Damage{File: d.PathOf(f.ID), Offset: damage.Offset, Err: damage.Err}
	case errors.Is(err, codec.ErrCorrupt):
		return nil, &codec.Damage{File: d.PathOf(f.ID), Offset: -1, Err: err}
	case err != nil:
		return nil, fmt.Errorf("load %s: %w", d.PathOf(f.ID), err)
	}
	return set, nil
}

func (d Dir) read(f File) (*Set, error) {
	file, err := os.Open(d.PathOf(f.ID))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: it is missing; restore the node from the others", codec.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() // only read
	stat, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if stat.Size() < f.Size {
		return nil, fmt.Errorf("%w: it has %d bytes, was written with %d", codec.ErrCorrupt, stat.Size(), f.Size)
	}
	changes := make([]byte, f.Size-f.Base)
	if _, err := file.ReadAt(changes, f.Base); err != nil {
		return nil, err
	}
	set, last, err := decodeFile(file, f.Base, changes)
	if err == nil && (set.count != f.Count || len(changes) > 0 && last != f.Next) {
		err = fmt.Errorf("%w: it holds %d seqs below %d, was written with %d below %d", codec.ErrCorrupt, set.count, last, f.Count, f.Next)
	}
	return set, err
}
