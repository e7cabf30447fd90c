package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Whoever starts a node on a directory that it cannot use is told of the key and of the remedy, before anything else fails by it.
func TestServe_namesADataDirectoryThatCannotBeUsed(t *testing.T) {
	defer signal.Reset(syscall.SIGHUP)
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "n1")} {
		var log strings.Builder
		code := run(t.Context(), []string{"serve", "--node.data_dir", dir, "--raft.listen", "127.0.0.1:0", "--api.listen", "127.0.0.1:0"}, strings.NewReader(""), io.Discard, &log)
		if want := fmt.Sprintf("node.data_dir is %q: it is a file, or in one: name a folder: ", dir); code == exitDone || !strings.Contains(log.String(), want) {
			t.Errorf("exit %d, logged %s, want %s", code, log.String(), want)
		}
	}
}

// The errors are made here, since root, who may run this, is refused nothing.
func TestDataDir_errorsNameUserAndRemedy(t *testing.T) {
	user := fmt.Sprintf("the user of this process, id %d,", os.Geteuid())
	chown := fmt.Sprintf("`chown -R %d /data`", os.Geteuid())
	refused := func(path string, err error) error {
		return fmt.Errorf("read which Kafka was used: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	for _, test := range []struct {
		err  error
		want []string // nil: the error as it is
	}{
		{refused("/data/kafka-cluster-id", syscall.EACCES), []string{`node.data_dir is "/data"`, user, chown, "read which Kafka was used", "permission denied"}},
		{refused("/data/raft/stable.db", syscall.EPERM), []string{user, chown}},
		{refused("/data/raft/stable.db", syscall.EROFS), []string{"mount it for writing", "read-only"}},
		{refused("/data/raft/stable.db", syscall.EIO), nil},
		{refused("/database/key.pem", syscall.EACCES), nil},
		{errors.New("listen tcp :80: bind: permission denied"), nil},
		{nil, nil},
	} {
		got := inDataDir("/data", test.err)
		if test.want == nil && got != test.err {
			t.Errorf("%v turned into %v", test.err, got)
		}
		for _, want := range test.want {
			if !errors.Is(got, test.err) || !strings.Contains(got.Error(), want) {
				t.Errorf("%v does not say %q", got, want)
			}
		}
	}
}

func TestDataDir_isMadeAndLeftEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := checkDataDir(dir); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	// Root may write to it all the same.
	if err := checkDataDir(dir); (err == nil) != (os.Geteuid() == 0) || err != nil && !strings.Contains(err.Error(), "`chown -R ") {
		t.Errorf("a directory that is not to be written to: %v", err)
	}
}
