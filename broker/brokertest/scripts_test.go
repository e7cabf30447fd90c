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
		script := readScript(t, path)
		if testing.Short() && script.long() {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			script.play(t)
		})
	}
}
