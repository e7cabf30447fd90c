package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// Create adds a token with what the grant allows to the file at the path, which it makes
// when missing, and returns the token: nothing else has it. The grant's ID is not read.
func Create(path string, g Grant, now time.Time) (token string, err error) {
	err = change(path, func(b Book) (Book, error) {
		for {
			token, g.ID = newToken()
			if !slices.ContainsFunc(b.entries, func(e Entry) bool { return e.ID == g.ID }) {
				break
			}
		}
		e := Entry{Grant: g, Created: now.UTC().Truncate(time.Second), Digest: sha256.Sum256([]byte(token))}
		return Book{entries: append(b.entries, e)}, nil
	})
	if err != nil {
		return "", fmt.Errorf("create a token: %w", err)
	}
	return token, nil
}

// Revoke takes the token of the id out of the file at the path and returns what it was.
func Revoke(path, id string) (revoked Entry, err error) {
	err = change(path, func(b Book) (Book, error) {
		i := slices.IndexFunc(b.entries, func(e Entry) bool { return e.ID == id })
		if i < 0 {
			return b, fmt.Errorf("%s has no token of the id %q: `carillon token list` shows the ids", path, id)
		}
		revoked = b.entries[i]
		return Book{entries: slices.Delete(b.entries, i, i+1)}, nil
	})
	if err != nil {
		return Entry{}, fmt.Errorf("revoke a token: %w", err)
	}
	return revoked, nil
}

// change reads the file, a missing one as empty, and puts another in its place. Two that
// change it wait for each other: they lock its folder.
func change(path string, to func(Book) (Book, error)) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Dir(path), err)
	}
	before, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	book, err := ReadBook(path, text)
	if err != nil {
		return err
	}
	if book, err = to(book); err != nil {
		return err
	}
	return replace(path, book, before)
}

// replace writes beside the file and renames, so that a node never reads half of one. Who
// owns it and who may read it stays; a new one is its maker's alone.
func replace(path string, b Book, before fs.FileInfo) (err error) {
	text, err := b.text()
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".tokens-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.Write(text)
	if before != nil && err == nil {
		owner := before.Sys().(*syscall.Stat_t)
		if int(owner.Uid) != os.Getuid() || int(owner.Gid) != os.Getgid() {
			err = next.Chown(int(owner.Uid), int(owner.Gid))
		}
		err = cmp.Or(err, next.Chmod(before.Mode().Perm()))
	}
	if err = errors.Join(cmp.Or(err, next.Sync()), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

// text is what ReadBook reads.
func (b Book) text() ([]byte, error) {
	type entry struct {
		ID          string   `yaml:"id"`
		Name        string   `yaml:"name"`
		Role        Role     `yaml:"role"`
		ReadPayload bool     `yaml:"read_payload"`
		Topics      []string `yaml:"topics,flow,omitempty"`
		Targets     []string `yaml:"targets,flow,omitempty"`
		Created     string   `yaml:"created,omitempty"`
		SHA256      string   `yaml:"sha256"`
	}
	file := struct {
		Tokens []entry `yaml:"tokens"`
	}{Tokens: []entry{}}
	for _, e := range b.entries {
		kept := entry{ID: e.ID, Name: e.Name, Role: e.Role, ReadPayload: e.ReadPayload, Topics: e.Topics, Targets: e.Targets, SHA256: hex.EncodeToString(e.Digest[:])}
		if !e.Created.IsZero() {
			kept.Created = e.Created.Format(time.RFC3339Nano)
		}
		file.Tokens = append(file.Tokens, kept)
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write the token file: %w", err)
	}
	return append([]byte("# Who may use the API. Written by `carillon token`; nodes take a change within seconds.\n"), text...), nil
}
