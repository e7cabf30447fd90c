package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/carillonmq/carillon/broker/reload"
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
			return b, fmt.Errorf("%s %w %q: `carillon token list` shows the ids", path, ErrNoToken, id)
		}
		revoked = b.entries[i]
		return Book{entries: slices.Delete(b.entries, i, i+1)}, nil
	})
	if err != nil {
		return Entry{}, fmt.Errorf("revoke a token: %w", err)
	}
	return revoked, nil
}

// change reads the file, a missing one as empty, and puts another in its place. One that nodes refuse, since
// others may read it, is refused: what it says does not count.
func change(path string, to func(Book) (Book, error)) error {
	return reload.File{Path: path, Secret: true, Optional: true}.Change(0o600, func(text []byte) ([]byte, error) {
		book, err := ReadBook(path, text)
		if err != nil {
			return nil, err
		}
		if book, err = to(book); err != nil {
			return nil, err
		}
		return book.text()
	})
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
