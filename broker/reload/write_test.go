package reload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWrite_keepsModeAndFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	f := File{Path: filepath.Join(dir, "n1.key"), Secret: true}
	// Somebody else has put links at names that could be guessed.
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1.key.next", "n1.key.new", "n1.key.tmp"} {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o640} { // that of a new one, then that which it was given
		if err := f.Write([]byte(mode.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(f.Path)
		if text, readErr := f.Read(); err != nil || readErr != nil || info.Mode() != mode || string(text) != mode.String() {
			t.Errorf("%q with mode %v, errors %v, %v", text, info.Mode(), err, readErr)
		}
		if err := os.Chmod(f.Path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "kept" {
		t.Errorf("the file behind the links is now %q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 5 {
		t.Errorf("%v lie there, %v", left, err)
	}
}

// A node reads the file behind the link, by whatever path it was given.
func TestChange_replacesTheFileBehindALink(t *testing.T) {
	for what, links := range map[string]map[string]string{
		"a link":                    {"given": "shared/real"},
		"links to links":            {"given": "other", "other": "shared/next", "shared/next": "real"},
		"a link to a folder":        {"folder": "shared", "shared/given": "real"},
		"a link to an absolute one": {"given": "/shared/real"},
	} {
		for _, missing := range []bool{false, true} {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "shared"), 0o700); err != nil {
				t.Fatal(err)
			}
			for from, to := range links {
				if filepath.IsAbs(to) {
					to = filepath.Join(dir, to)
				}
				if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
					t.Fatal(err)
				}
			}
			given, real := filepath.Join(dir, "given"), filepath.Join(dir, "shared", "real")
			if links["folder"] != "" {
				given = filepath.Join(dir, "folder", "given")
			}
			if err := os.WriteFile(real, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if missing {
				os.Remove(real)
			}
			err := File{Path: given, Optional: true}.Change(0o600, func([]byte) ([]byte, error) { return []byte("new"), nil })
			text, readErr := os.ReadFile(real)
			info, statErr := os.Lstat(given)
			if err != nil || readErr != nil || statErr != nil || string(text) != "new" || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s, missing: %t: the file is %q, what was given %v, errors %v, %v, %v", what, missing, text, info, err, readErr, statErr)
			}
		}
	}
}

func TestWrite_leavesNothingBesideWhatItCannotReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := File{Path: path}.Write([]byte("x"), 0o600)
	if left, _ := os.ReadDir(dir); err == nil || errors.Is(err, os.ErrNotExist) || len(left) != 1 {
		t.Errorf("error %v, and %v lie there", err, left)
	}
}

func TestChange_refusesWhatReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := File{Path: path, Secret: true}
	never := func([]byte) ([]byte, error) { t.Error("asked"); return nil, nil }
	if err := f.Change(0o600, never); err == nil || !strings.Contains(err.Error(), "has mode 0644, so that others may read or change it: run chmod") {
		t.Errorf("error %v", err)
	}
	if err := (File{Path: path + "x"}).Change(0o600, never); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v of one that is missing", err)
	}
}

func TestChange_losesNoneOfTwoAtATime(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "list"), Optional: true}
	const each = 8
	var done sync.WaitGroup
	for range each {
		done.Go(func() {
			if err := f.Change(0o600, func(text []byte) ([]byte, error) { return append(text, 'x'), nil }); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if text, err := f.Read(); err != nil || len(text) != each {
		t.Errorf("%q, %v", text, err)
	}
}
