package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A logbook keeps what is known of mutants in a file, so that a run goes on where the last one
// ended. It is about one source: what was found in another one says nothing.
type logbook struct {
	path string
	kept
}

type kept struct {
	Source  string              `json:"source"`  // hash of the source without a mutant
	Usual   map[uint64][]string `json:"usual"`   // checks that fail without a mutant, by seed
	Planted map[string]trial    `json:"planted"` // by name
	Drawn   map[string]trial    `json:"drawn"`   // by place and kind
}

// A trial is what became of one mutant.
type trial struct {
	Hash   string `json:"hash,omitempty"` // of the patch
	Builds bool   `json:"builds"`
	Find   find   `json:"find"`
	Units  string `json:"units,omitempty"` // drawn: the unit test that failed
	Tested bool   `json:"tested,omitempty"`
}

// openLogbook reads the file, if it is about that source.
func openLogbook(path, source string) (*logbook, error) {
	l := &logbook{path: path, kept: nothingKept(source)}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &l.kept)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: remove it to begin anew", path, err)
	}
	if l.Source != source {
		l.kept = nothingKept(source)
	}
	return l, nil
}

func nothingKept(source string) kept {
	return kept{Source: source, Usual: map[uint64][]string{}, Planted: map[string]trial{}, Drawn: map[string]trial{}}
}

func (l *logbook) usual(seed uint64) ([]string, bool) {
	checks, ok := l.Usual[seed]
	return checks, ok
}

func (l *logbook) noteUsual(seed uint64, checks []string) error {
	l.Usual[seed] = checks
	return l.save()
}

// save writes the file anew. A run that is killed leaves the one before or this one, whole.
func (l *logbook) save() error {
	data, err := json.MarshalIndent(l.kept, "", "\t")
	if err != nil {
		return fmt.Errorf("write %s: %w", l.path, err)
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", l.path, err)
	}
	if err := os.WriteFile(l.path+".new", data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", l.path, err)
	}
	return os.Rename(l.path+".new", l.path)
}
