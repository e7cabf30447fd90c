package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that is expected to happen soon.
const patience = time.Minute

// A process is a child that logs to a file and dies with the test.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited; cmd.ProcessState is set then
}

// start runs argv in the background with env added to the environment. The end of its log is
// shown when the test fails.
func start(t testing.TB, name string, env []string, argv ...string) *process {
	t.Helper()
	p := &process{
		name: name,
		log:  filepath.Join(t.TempDir(), strings.ReplaceAll(name, " ", "-")+".log"),
		cmd:  exec.Command(argv[0], argv[1:]...),
		done: make(chan struct{}),
	}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// The kernel ends the child even if this test process is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the state tells how it ended
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, tail(p.log, 4<<10))
		}
	})
	return p
}

// kill sends SIGKILL and waits for the exit. Killing what has exited does nothing.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// stop sends SIGTERM and waits for the exit, at most a minute before it kills.
func (p *process) stop() { p.end(syscall.SIGTERM) }

// send sends a signal and does not wait.
func (p *process) send(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may have exited just now
}

func (p *process) end(sig syscall.Signal) {
	select {
	case <-p.done:
		return
	default:
	}
	p.send(sig)
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// tail returns at most the last n bytes of a file.
func tail(path string, n int) []byte {
	all, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(all[max(0, len(all)-n):])
}

// await polls until ok says true, and fails the test with what after the limit.
func await(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// run runs a command to its end and returns what it printed; a failure fails the test.
func run(t testing.TB, dir string, env []string, argv ...string) string {
	t.Helper()
	out, err := command(t, dir, env, argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}

// command is a command in a folder, with env added to the environment, that ends with the test.
func command(t testing.TB, dir string, env []string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	return cmd
}
