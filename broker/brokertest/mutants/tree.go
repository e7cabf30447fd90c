package mutants

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Tree is a copy of a module as it was when it was taken, in a directory where mutants are tried.
// The directory should be the same each time, since the go command caches by path.
type Tree struct {
	Dir  string
	Hash string // of the source: results for another one say nothing

	files map[string]file // by path, with slashes
	lock  *os.File        // held until Close, or until the process ends
}

type file struct {
	text []byte
	mode fs.FileMode
}

// Copy takes the files of the module at root that git does not ignore, and puts them into the
// directory. What else is there is removed. The directory is this tree's alone until Close: ErrInUse
// says that another one is there, whose mutants would get into what is built here.
func Copy(ctx context.Context, root, dir string) (*Tree, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", dir, err)
	}
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w: run it at the root of the module's repository", root, err)
	}
	lock, err := Lock(dir + ".lock")
	if err != nil {
		return nil, err
	}
	t := &Tree{Dir: dir, files: make(map[string]file), lock: lock}
	if err := t.begin(root, listed); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// begin takes the files that git has listed, and puts them into the directory.
func (t *Tree) begin(root string, listed []byte) error {
	for _, path := range strings.Split(strings.TrimRight(string(listed), "\x00"), "\x00") {
		if err := t.take(root, path); err != nil {
			return fmt.Errorf("copy %s: %w", root, err)
		}
	}
	if _, ok := t.files["go.mod"]; !ok {
		return fmt.Errorf("copy %s: there is no go.mod: run it at the root of the module", root)
	}
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		if !strings.HasSuffix(path, patchExt) { // each patch counts for itself
			fmt.Fprintf(sum, "%s %d\n%s", path, len(t.files[path].text), t.files[path].text)
		}
	}
	t.Hash = hex.EncodeToString(sum.Sum(nil)[:8])
	return t.Restore()
}

// Lock makes the file if need be and takes it for this process, until it is closed. ErrInUse says that another has it.
func Lock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: wait for it to end, or name another directory", ErrInUse, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return lock, nil
}

// Close gives the directory back, and leaves the files.
func (t *Tree) Close() error { return t.lock.Close() }

func (t *Tree) take(root, path string) error {
	from := filepath.Join(root, filepath.FromSlash(path))
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed and not committed
	}
	if err != nil || info.IsDir() {
		return err
	}
	text, err := os.ReadFile(from)
	t.files[path] = file{text, info.Mode().Perm()}
	return err
}

// Restore makes the directory what it was at first.
func (t *Tree) Restore() error {
	changed, err := t.Changed()
	if err != nil {
		return err
	}
	for _, path := range changed {
		f, ok := t.files[path]
		if !ok {
			err = os.Remove(t.path(path))
		} else {
			err = t.write(path, f)
		}
		if err != nil {
			return fmt.Errorf("restore the tree: %w", err)
		}
	}
	return nil
}

// Write puts another text into a file of the tree.
func (t *Tree) Write(path string, text []byte) error { return t.write(path, file{text, 0o644}) }

// Text returns what a file had at first.
func (t *Tree) Text(path string) []byte { return t.files[path].text }

// Files returns the paths of all files, in order.
func (t *Tree) Files() []string { return slices.Sorted(maps.Keys(t.files)) }

func (t *Tree) write(path string, f file) error {
	to := t.path(path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, f.text, f.mode)
}

func (t *Tree) path(path string) string { return filepath.Join(t.Dir, filepath.FromSlash(path)) }

// Changed returns the files that are not what they were, in order.
func (t *Tree) Changed() (changed []string, err error) {
	seen := make(map[string]bool)
	err = filepath.WalkDir(t.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == t.Dir {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(t.Dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		seen[name] = true
		text, err := os.ReadFile(path)
		if f, ok := t.files[name]; !ok || !bytes.Equal(text, f.text) {
			changed = append(changed, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("compare the tree: %w", err)
	}
	for path := range t.files {
		if !seen[path] {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed, nil
}
