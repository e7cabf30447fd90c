package reload

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Change puts in the place of the file what becomes of its text, nil if it is missing; see Write. Two that
// change a file wait for each other: they lock its folder. A file that Read refuses is left as it is, and so
// is one where to returns an error.
func (f File) Change(mode fs.FileMode, to func(text []byte) ([]byte, error)) (err error) {
	if f.Path, err = behindLinks(f.Path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(f.Path))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Dir(f.Path), err)
	}
	text, err := f.Read()
	if err != nil {
		return err
	}
	if text, err = to(text); err != nil {
		return err
	}
	return f.Write(text, mode)
}

// Write puts the text in the place of the file. It writes beside it and renames, so that nobody, as a Keeper
// of a running node, ever reads half of it; once Write has returned, a power cut takes nothing back. A new
// file has the mode and is its maker's; of one that was there, owner and mode stay. Where the path is a link,
// the file behind it is replaced: others reach that one by other paths.
func (f File) Write(text []byte, mode fs.FileMode) (err error) {
	if f.Path, err = behindLinks(f.Path); err != nil {
		return err
	}
	before, err := os.Stat(f.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(f.Path)
	next, err := os.CreateTemp(dir, ".next-*") // which nobody else may open, or has put a link there for
	if err != nil {
		return err
	}
	err = fill(next, text, mode, before)
	if err == nil {
		err = os.Rename(next.Name(), f.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close()) // the new name is on disk, too
}

// behindLinks returns the path of the file without links. It need not exist, its folder must.
func behindLinks(path string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	path = filepath.Join(folder, filepath.Base(path))
	to, err := os.Readlink(path)
	if err != nil { // it is no link
		return path, nil
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(folder, to)
	}
	return behindLinks(to)
}

// fill writes and closes the file that takes the place of the one before, nil if there was none.
func fill(next *os.File, text []byte, mode fs.FileMode, before fs.FileInfo) error {
	_, err := next.Write(text)
	if before != nil {
		mode = before.Mode().Perm()
		if owner := before.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Getuid() || int(owner.Gid) != os.Getgid() {
			err = cmp.Or(err, next.Chown(int(owner.Uid), int(owner.Gid)))
		}
	}
	err = cmp.Or(err, next.Chmod(mode))
	return errors.Join(cmp.Or(err, next.Sync()), next.Close())
}
