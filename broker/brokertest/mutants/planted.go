// Package mutants has the planted bugs, one small patch file each, that the simulator has to find,
// and draws others from the syntax of the source. A mutant is tried on a copy of the module (Tree).
//
// A patch begins with two or three sentences that say which promise it breaks, and how; then comes
// a unified diff that git apply takes at the root of the module.
package mutants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const patchExt = ".patch"

// A Planted is a bug that somebody has written.
type Planted struct {
	Name  string // of its file, without .patch
	About string // which promise it breaks, and how
	Patch []byte
}

// Read returns the planted bugs of a directory, in order of their names.
func Read(dir string) ([]Planted, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+patchExt))
	if err != nil {
		return nil, fmt.Errorf("look for patches in %s: %w", dir, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: %s has no file *%s", ErrPatch, dir, patchExt)
	}
	var planted []Planted
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read patch: %w", err)
		}
		p, err := parse(strings.TrimSuffix(filepath.Base(path), patchExt), text)
		if err != nil {
			return nil, err
		}
		planted = append(planted, p)
	}
	return planted, nil
}

func parse(name string, text []byte) (Planted, error) {
	head, _, found := bytes.Cut(text, []byte("\ndiff --git "))
	about := strings.Join(strings.Fields(string(head)), " ")
	switch {
	case bytes.HasPrefix(text, []byte("diff --git ")), about == "":
		return Planted{}, fmt.Errorf("%w: %s%s says nothing before its diff: begin with the promise that it breaks, and how", ErrPatch, name, patchExt)
	case !found:
		return Planted{}, fmt.Errorf("%w: %s%s has no line that begins with \"diff --git\": write it with git diff", ErrPatch, name, patchExt)
	}
	return Planted{Name: name, About: about, Patch: text}, nil
}

// Apply puts the bug into the tree. It returns ErrDoesNotApply when the source has moved on.
func (p Planted) Apply(ctx context.Context, tree *Tree) error {
	// One line of context is enough: comments around a bug may change.
	cmd := exec.CommandContext(ctx, "git", "apply", "-C1", "-")
	cmd.Dir = tree.Dir
	// Inside a repository git would pass over what is not below the present directory.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tree.Dir), "GIT_DIR=")
	cmd.Stdin = bytes.NewReader(p.Patch)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s%s: %w: %s", ErrDoesNotApply, p.Name, patchExt, err, bytes.TrimSpace(said))
	}
	changed, err := tree.Changed()
	if err == nil && len(changed) == 0 {
		err = fmt.Errorf("%w: %s%s changes no file", ErrDoesNotApply, p.Name, patchExt)
	}
	return err
}
