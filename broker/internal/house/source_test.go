package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/carillonmq/carillon"

// A source is one parsed Go file of the module.
type source struct {
	path  string // relative to the module's root, with slashes
	pkg   string // its folder, "." for the root
	test  bool
	lines int
	file  *ast.File
}

// imports returns the import paths of the file.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

// sources parses every Go file of the module; nested modules are not part of it.
func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && isNestedModule(path) || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		all = append(all, source{
			path:  rel,
			pkg:   filepath.ToSlash(filepath.Dir(rel)),
			test:  strings.HasSuffix(rel, "_test.go"),
			lines: fset.File(file.Pos()).LineCount(),
			file:  file,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d Go files from %s: the walk does not see the module", len(all), root)
	}
	return all
}

func isNestedModule(dir string) bool {
	matches, _ := filepath.Glob(filepath.Join(dir, "go.mod"))
	return len(matches) > 0
}
