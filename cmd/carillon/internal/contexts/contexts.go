// Package contexts keeps under names how a user reaches the clusters that he works with, so that
// nobody types addresses and files each time.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/carillonmq/carillon/broker/reload"
)

var (
	// ErrUnknown is returned when no context has the name.
	ErrUnknown = errors.New("there is no context")
	// ErrTaken is returned when a context has the name already.
	ErrTaken = errors.New("there is a context")
	// ErrName is returned for a name that a context cannot have.
	ErrName = errors.New("no name of a context")
)

// A Context is how one cluster is reached. It names files and holds no secret.
type Context struct {
	Name string `yaml:"name" json:"name"`
	// API has addresses of nodes as --api takes them. The first that answers is asked.
	API       []string `yaml:"api,flow" json:"api"`
	TokenFile string   `yaml:"token_file,omitempty" json:"token_file,omitempty"`
	CAFile    string   `yaml:"ca_file,omitempty" json:"ca_file,omitempty"`
	CertFile  string   `yaml:"cert_file,omitempty" json:"cert_file,omitempty"`
	KeyFile   string   `yaml:"key_file,omitempty" json:"key_file,omitempty"`
}

// A Book is the contexts of a user. The zero value has none.
type Book struct {
	Current  string    `yaml:"current,omitempty"` // name of the one in use; "": none
	Contexts []Context `yaml:"contexts"`
}

// Path returns where the contexts of the user of this process are: carillon/contexts.yaml in the
// folder for configurations, which on Linux is $XDG_CONFIG_HOME or else ~/.config.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the contexts: %w", err)
	}
	return filepath.Join(dir, "carillon", "contexts.yaml"), nil
}

// Read returns what is in the file, an empty book when it is missing. A file that others may change
// is refused: they could have the user's token sent to them.
func Read(path string) (Book, error) {
	text, err := file(path).Read()
	if err != nil {
		return Book{}, fmt.Errorf("read the contexts: %w", err)
	}
	b, err := parse(path, text)
	if err != nil {
		return Book{}, fmt.Errorf("read the contexts: %w", err)
	}
	return b, nil
}

func file(path string) reload.File { return reload.File{Path: path, Secret: true, Optional: true} }

func parse(path string, text []byte) (Book, error) {
	var b Book
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&b); err != nil && !errors.Is(err, io.EOF) { // of an empty file
		return Book{}, fmt.Errorf("%s: %w: correct it, or remove it and add the contexts again", path, err)
	}
	return b, nil
}

// Change reads the file, has the book changed, and puts it in the place of the file, for its owner alone. The
// file is whole at any moment, and two that change it wait for each other. An error of to is returned as it is.
func Change(path string, to func(b *Book) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("change the contexts: %w", err)
	}
	var refused error
	err := file(path).Change(0o600, func(text []byte) ([]byte, error) {
		b, err := parse(path, text)
		if err != nil {
			return nil, err
		}
		if refused = to(&b); refused != nil {
			return nil, refused
		}
		return yaml.Marshal(b)
	})
	if err == nil || refused != nil {
		return refused
	}
	return fmt.Errorf("change the contexts: %w", err)
}

// names are short, so that they fit a prompt, and need no quotes in a shell.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Add adds the context. The first one is in use from then on.
func (b *Book) Add(c Context) error {
	if !names.MatchString(c.Name) {
		return fmt.Errorf("%q is %w: use 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first", c.Name, ErrName)
	}
	if b.find(c.Name) >= 0 {
		return fmt.Errorf("%w %q: choose another name, or run `carillon context remove %[2]s` first", ErrTaken, c.Name)
	}
	b.Contexts = append(b.Contexts, c)
	if b.Current == "" {
		b.Current = c.Name
	}
	return nil
}

// Use has the context of that name in use from then on.
func (b *Book) Use(name string) error {
	if _, err := b.Get(name); err != nil {
		return err
	}
	b.Current = name
	return nil
}

// Get returns the context of that name.
func (b *Book) Get(name string) (Context, error) {
	if i := b.find(name); i >= 0 {
		return b.Contexts[i], nil
	}
	return Context{}, fmt.Errorf("%w %q: `carillon context list` shows those that there are, `carillon context add` makes one", ErrUnknown, name)
}

// Remove takes the context of that name away. If it was the one in use, none is from then on.
func (b *Book) Remove(name string) error {
	if _, err := b.Get(name); err != nil {
		return err
	}
	i := b.find(name)
	b.Contexts = slices.Delete(b.Contexts, i, i+1)
	if b.Current == name {
		b.Current = ""
	}
	return nil
}

func (b *Book) find(name string) int {
	return slices.IndexFunc(b.Contexts, func(c Context) bool { return c.Name == name })
}
