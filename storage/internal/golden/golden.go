// Package golden compares what is written with what programs before this one have
// written, kept as hex in testdata. It is for tests.
package golden

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Compare compares b with testdata/<name>.hex, 32 bytes a line, and returns the file's
// bytes. With -update it writes the file first.
func Compare(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	if *update {
		var lines strings.Builder
		for rest := b; len(rest) > 0; rest = rest[min(32, len(rest)):] {
			lines.WriteString(hex.EncodeToString(rest[:min(32, len(rest))]) + "\n")
		}
		if err := os.WriteFile(pathOf(name), []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := Read(t, name)
	if string(b) != string(want) {
		t.Errorf("%s is written as\n%x, was\n%x", name, b, want)
	}
	return want
}

func pathOf(name string) string { return filepath.Join("testdata", name+".hex") }

// Read returns the bytes of testdata/<name>.hex, which no program writes any more.
func Read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(pathOf(name))
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return want
}
