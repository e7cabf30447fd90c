package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// namedTest is a test as the documents name it; a star behind it means all that begin so.
	namedTest = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)(\\*?)`")
	// namedScript is a script of broker/testdata.
	namedScript = regexp.MustCompile("`([a-z0-9_]+\\.txt)`")
	isTest      = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(`)
)

// A promise that names its proof names one that there is: whoever renames a test does so in the documents.
func TestDocuments_nameTestsThatThereAre(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	tests := make(map[string]bool)
	documents := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() && path != root && strings.HasPrefix(e.Name(), ".") && len(e.Name()) > 2 {
			return filepath.SkipDir
		}
		isDocument := strings.HasSuffix(path, ".md") && filepath.Base(path) != "CHANGELOG.md"
		if err != nil || e.IsDir() || !isDocument && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if isDocument {
			documents[path] = string(text)
		}
		for _, found := range isTest.FindAllStringSubmatch(string(text), -1) {
			tests[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for path, text := range documents {
		for _, found := range namedTest.FindAllStringSubmatch(text, -1) {
			named++
			known := tests[found[1]]
			for test := range tests {
				known = known || found[2] == "*" && strings.HasPrefix(test, found[1])
			}
			if !known {
				t.Errorf("%s names %s, which is no test", path, found[0])
			}
		}
	}
	promises := documents[filepath.Join(root, "docs", "guarantees.md")]
	for _, found := range namedScript.FindAllStringSubmatch(promises, -1) {
		if _, err := os.Stat(filepath.Join(root, "broker", "testdata", found[1])); err != nil {
			t.Errorf("docs/guarantees.md names the script %s: %v", found[1], err)
		}
	}
	if named < 100 {
		t.Errorf("%d tests are named in %d documents: are they written otherwise now?", named, len(documents))
	}
}
