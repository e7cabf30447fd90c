package mutants

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const goodPatch = `Breaks: the sum of two numbers.
It subtracts.

diff --git a/sum.go b/sum.go
--- a/sum.go
+++ b/sum.go
@@ -2,4 +2,4 @@
 
 func sum(a, b int) int {
-	return a + b
+	return a - b
 }
`

func TestParse_wantsAHeaderAndADiff(t *testing.T) {
	p, err := parse("sum", []byte(goodPatch))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "sum" || p.About != "Breaks: the sum of two numbers. It subtracts." {
		t.Errorf("parsed as %q: %q", p.Name, p.About)
	}
	_, diff, _ := strings.Cut(goodPatch, "\n\n")
	for name, text := range map[string]string{"no header": diff, "blank header": "\n" + diff, "no diff": "Breaks: the sum.\n"} {
		if _, err := parse("sum", []byte(text)); !errors.Is(err, ErrPatch) || !strings.Contains(err.Error(), "sum.patch") {
			t.Errorf("%s: error %v, want ErrPatch that names the file", name, err)
		}
	}
}

// module makes a repository of these files and a tree of it.
func module(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		to := filepath.Join(root, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command("git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, said)
	}
	tree, err := Copy(t.Context(), root, filepath.Join(root, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// Two that build in one directory would play each other's mutants.
func TestCopy_hasItsDirectoryAlone(t *testing.T) {
	tree := module(t, map[string]string{"go.mod": "module m\n"})
	root := filepath.Dir(tree.Dir)
	if _, err := Copy(t.Context(), root, tree.Dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), tree.Dir) {
		t.Errorf("error %v, want ErrInUse that names the directory", err)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Copy(t.Context(), root, tree.Dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestApply_changesTheCopyOrSaysWhyNot(t *testing.T) {
	source := map[string]string{"go.mod": "module m\n", "sum.go": "package m\n\nfunc sum(a, b int) int {\n\treturn a + b\n}\n"}
	planted, err := parse("sum", []byte(goodPatch))
	if err != nil {
		t.Fatal(err)
	}
	tree := module(t, source)
	if err := planted.Apply(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(tree.Dir, "sum.go"))
	if err != nil || !bytes.Contains(text, []byte("a - b")) {
		t.Errorf("the copy has %q, error %v", text, err)
	}
	if err := planted.Apply(t.Context(), tree); !errors.Is(err, ErrDoesNotApply) {
		t.Errorf("applied twice: error %v, want ErrDoesNotApply", err)
	}
	if err := tree.Restore(); err != nil {
		t.Fatal(err)
	}
	if changed, err := tree.Changed(); len(changed) > 0 || err != nil {
		t.Errorf("restored, the tree differs in %v, error %v", changed, err)
	}

	source["sum.go"] = strings.Replace(source["sum.go"], "a + b", "b + a", 1)
	if err := planted.Apply(t.Context(), module(t, source)); !errors.Is(err, ErrDoesNotApply) || !strings.Contains(err.Error(), "sum.patch") {
		t.Errorf("the source has moved on: error %v, want ErrDoesNotApply that names the file", err)
	}
}

func TestRestore_removesWhatIsNotOfTheSource(t *testing.T) {
	tree := module(t, map[string]string{"go.mod": "module m\n", "a/a.go": "package a\n"})
	if err := tree.Write("b/b.go", []byte("package b\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(tree.Dir, "a", "a.go")); err != nil {
		t.Fatal(err)
	}
	if changed, err := tree.Changed(); err != nil || !slices.Equal(changed, []string{"a/a.go", "b/b.go"}) {
		t.Errorf("changed %v, error %v", changed, err)
	}
	if err := tree.Restore(); err != nil {
		t.Fatal(err)
	}
	if changed, err := tree.Changed(); err != nil || len(changed) > 0 {
		t.Errorf("restored, the tree differs in %v, error %v", changed, err)
	}
}

// A patch that does not apply any more, or does not build with it, finds nothing: whoever changes the code that it is
// about writes the same bug into the new code.
func TestPlanted_applyToTheSourceAndBuild(t *testing.T) {
	planted, err := Read(".")
	if err != nil {
		t.Fatal(err)
	}
	ofHistories, err := Read("histories")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	planted = append(planted, ofHistories...)
	var files []string
	for _, p := range planted {
		files = append(files, filesOf(p)...)
	}
	c := newChecker(t, root, files)
	for _, p := range planted {
		texts, err := plant(t, p, root)
		if err == nil {
			err = c.check(texts)
		}
		if err != nil {
			t.Errorf("%s.patch: %v", p.Name, err)
		}
	}
}

func read(t *testing.T, tree *Tree, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(tree.path(path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
