package brokertest

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every script of broker/testdata is a test: see script.go for the language.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("../testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) { RunScript(t, path) })
	}
}
