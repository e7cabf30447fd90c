package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest"
)

// The packages whose branches a run counts.
const covered = "./broker/schedule,./broker/deliver,./broker/ingest"

// What is built: the program that plays one script, and that of all tests of the cluster, which takes twice as long.
const (
	playing  = "./broker/brokertest/play"
	allTests = "./broker/brokertest"
)

// A binary is one of these two.
type binary struct {
	path    string
	covers  bool          // it counts branches
	timeout time.Duration // of real time, that a script may take
}

// build compiles the test binary of the package pkg from the module in the directory source and
// writes it to the path out. It wraps errBuild when the source does not compile.
func build(ctx context.Context, source, pkg, out string, cover bool) (binary, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return binary{}, fmt.Errorf("find %s: %w", out, err)
	}
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", out} // nobody debugs it, and linking is most of the work
	if cover {
		args = append(args, "-cover", "-coverpkg="+covered)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = source
	if text, err := cmd.CombinedOutput(); err != nil {
		return binary{}, fmt.Errorf("%w in %s: %w\n%s", errBuild, source, err, text)
	}
	return binary{path: out, covers: cover, timeout: 10 * time.Minute}, nil
}

// play plays a script in a child process and returns what it reports. What the process does by
// itself (a panic, a bubble that deadlocks, no end) is a problem like any other; an error means
// that nothing was played: it wraps errScript when the script is at fault.
func (b binary) play(ctx context.Context, script string) (outcome, error) {
	dir, err := os.MkdirTemp(scratch(), "carillon-sim-")
	if err != nil {
		return outcome{}, fmt.Errorf("make a directory for the child: %w", err)
	}
	defer os.RemoveAll(dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("script.txt"), []byte(script), 0o600); err != nil {
		return outcome{}, fmt.Errorf("write the script: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, b.timeout+10*time.Second) // it ends itself before
	defer cancel()
	var text bytes.Buffer
	begin := time.Now()
	err = b.command(bounded, dir, &text).Run()
	o := outcome{Report: brokertest.NewReport(), Took: time.Since(begin), Output: text.String()}
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return o, fmt.Errorf("start %s: %w", b.path, err)
	}
	if bounded.Err() != nil {
		o.add("stuck", fmt.Sprintf("the process did not end within %v", b.timeout))
	}
	if err := o.read(in("report.json"), err != nil); err != nil {
		return o, err
	}
	if b.covers {
		o.Cover, _ = os.ReadFile(in("cover.out")) // a process that panics leaves none
	}
	return o, nil
}

// command is the child: it has its files in the directory, and one processor, since several
// children share the machine. It collects garbage seldom: it has little memory, and a short life.
func (b binary) command(ctx context.Context, dir string, text *bytes.Buffer) *exec.Cmd {
	args := []string{"-test.run=^TestPlay$", "-test.timeout=" + b.timeout.String(), "-script=script.txt", "-report=report.json"}
	if b.covers {
		args = append(args, "-test.coverprofile=cover.out")
	}
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GOMAXPROCS=1", "GOGC=600")
	cmd.Stdout, cmd.Stderr = text, text
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// scratch is where the children have their disks, unless TMPDIR says so: in memory if the system offers
// that.
func scratch() string {
	if os.Getenv("TMPDIR") != "" {
		return os.TempDir()
	}
	return brokertest.Scratch()
}
