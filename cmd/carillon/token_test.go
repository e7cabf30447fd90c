package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestTokenCreate_failsWhenNobodyGetsTheToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	var problem strings.Builder
	code := run(t.Context(), []string{"token", "create", "anna", "--role", "viewer", "--api.tokens", path}, strings.NewReader(""), fullDisk{}, &problem)
	want := "carillon: print the token: no space left on device: nobody has it, so revoke the last one that `carillon token list` shows of " + path + ", and make another\n"
	if code != exitFailed || problem.String() != want {
		t.Errorf("exit %d, %q; want %d, %q", code, problem.String(), exitFailed, want)
	}
}
