package mutants

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A checker tells whether packages build that have a bug planted, without building them: it takes the types of all
// that they import from what the go command has compiled.
type checker struct {
	root   string // of the module
	byDir  map[string]*listed
	byPath map[string]*listed
	order  map[string]int // by import path: what is imported comes first

	fset     *token.FileSet
	compiled types.Importer
}

// A listed is a package as go list has it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// newChecker compiles the packages of those files, and what they import, unless that was done before.
func newChecker(t *testing.T, root string, files []string) *checker {
	t.Helper()
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, "./"+path.Dir(file))
	}
	slices.Sort(dirs)
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Imports"}, slices.Compact(dirs)...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages that patches change: %v", err)
	}
	c := &checker{root: root, byDir: make(map[string]*listed), byPath: make(map[string]*listed), order: make(map[string]int), fset: token.NewFileSet()}
	c.compiled = importer.ForCompiler(c.fset, "gc", c.open)
	for packages := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := packages.Decode(p); errors.Is(err, io.EOF) {
			return c
		} else if err != nil {
			t.Fatal(err)
		}
		c.byDir[p.Dir], c.byPath[p.ImportPath], c.order[p.ImportPath] = p, p, len(c.order)
	}
}

// open returns what the go command has compiled of a package.
func (c *checker) open(path string) (io.ReadCloser, error) {
	p, known := c.byPath[path]
	if !known {
		return nil, fmt.Errorf("%s was not imported before", path)
	}
	return os.Open(p.Export)
}

// check returns why the packages of the files do not build when these have such texts.
func (c *checker) check(texts map[string][]byte) error {
	var changed []*listed
	for file := range texts {
		p, known := c.byDir[filepath.Join(c.root, filepath.FromSlash(path.Dir(file)))]
		if !known {
			return fmt.Errorf("%s is of no package", file)
		}
		if !slices.Contains(changed, p) {
			changed = append(changed, p)
		}
	}
	// What a package imports is checked before it, and taken as it is then.
	fresh := make(map[string]*types.Package)
	for _, p := range c.between(changed) {
		var err error
		if fresh[p.ImportPath], err = c.checkPackage(p, texts, fresh); err != nil {
			return err
		}
	}
	return nil
}

// between returns the packages, and those through which one of them imports another: all that is to be checked anew
// for their types to be the same. What is imported comes first.
func (c *checker) between(packages []*listed) []*listed {
	all := slices.SortedFunc(maps.Values(c.byPath), func(a, b *listed) int { return cmp.Compare(c.order[a.ImportPath], c.order[b.ImportPath]) })
	imports := make(map[string]bool) // one of the packages
	for _, p := range all {
		imports[p.ImportPath] = slices.Contains(packages, p) || slices.ContainsFunc(p.Imports, func(path string) bool { return imports[path] })
	}
	imported := make(map[string]bool) // by one of them
	var found []*listed
	for _, p := range slices.Backward(all) {
		if !imports[p.ImportPath] || !imported[p.ImportPath] && !slices.Contains(packages, p) {
			continue
		}
		found = append(found, p)
		for _, path := range p.Imports {
			imported[path] = true
		}
	}
	slices.Reverse(found)
	return found
}

func (c *checker) checkPackage(p *listed, texts map[string][]byte, fresh map[string]*types.Package) (*types.Package, error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		full := filepath.Join(p.Dir, name)
		var text any
		if relative, err := filepath.Rel(c.root, full); err != nil {
			return nil, err
		} else if planted, is := texts[filepath.ToSlash(relative)]; is {
			text = planted
		}
		file, err := parser.ParseFile(c.fset, full, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	var all []error
	config := types.Config{
		Importer: importing(func(path string) (*types.Package, error) {
			if p := fresh[path]; p != nil {
				return p, nil
			}
			return c.compiled.Import(path)
		}),
		Error: func(err error) { all = append(all, err) },
	}
	checked, err := config.Check(p.ImportPath, c.fset, files, nil)
	if len(all) > 0 {
		err = errors.Join(all...)
	}
	return checked, err
}

// importing is an importer.
type importing func(path string) (*types.Package, error)

func (i importing) Import(path string) (*types.Package, error) { return i(path) }

// filesOf returns the paths of what a patch changes.
func filesOf(p Planted) []string {
	var files []string
	for line := range strings.Lines(string(p.Patch)) {
		if file, is := strings.CutPrefix(line, "--- a/"); is {
			files = append(files, strings.TrimSpace(file))
		}
	}
	return files
}

// plant returns what the files of a patch are with it.
func plant(t *testing.T, p Planted, root string) (map[string][]byte, error) {
	t.Helper()
	tree := &Tree{Dir: t.TempDir(), files: make(map[string]file)}
	for _, path := range filesOf(p) {
		if err := tree.take(root, path); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Restore(); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(t.Context(), tree); err != nil {
		return nil, err
	}
	texts := make(map[string][]byte)
	for _, path := range filesOf(p) {
		texts[path] = read(t, tree, path)
	}
	return texts, nil
}

func TestChecker_findsWhatDoesNotBuild(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	const file = "raftfsm/repeats/repeats.go"
	good, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker(t, root, []string{file})
	for text, want := range map[string]string{
		string(good):                           "",
		string(good) + "func f() { n := 1 }\n": "declared and not used: n",
		string(good) + "func f() int {}\n":     "missing return",
		string(good) + "func f() {":            "expected",
		strings.Replace(string(good), "import (", "import (\n\tclock \"time\"", 1): "and not used",
	} {
		err := c.check(map[string][]byte{file: []byte(text)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want an error that says %q: %v", want, err)
		}
	}
}
