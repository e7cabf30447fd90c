package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// drainTimeout bounds how long a child may take to end in good order.
const drainTimeout = 10 * time.Second

// A child is a process of this program that ends when its standard input does,
// which is when stop closes it or this process is no more.
type child struct {
	name  string
	log   string // path
	input io.Closer
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
}

// startChild runs this program with the arguments. What it logs goes to the file: in place of what is there
// with os.O_TRUNC, behind it with os.O_APPEND.
func startChild(name, log string, mode int, args ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|mode, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer file.Close() // the child has its own
	c := &child{name: name, log: log, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = file, file
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent, which ends its children in order
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // end says it
	}()
	return c, nil
}

// watch blocks until the child ends, which is an error, or ctx does.
func (c *child) watch(ctx context.Context) error {
	select {
	case <-c.ended:
		return c.failure()
	case <-ctx.Done():
		return nil
	}
}

// await calls ready until it returns nil or ctx ends. When that takes more than a
// moment, it says what is waited for.
func (c *child) await(ctx context.Context, out io.Writer, ready func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	moment := time.After(time.Second)
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-moment:
			fmt.Fprintf(out, "waiting for %s: %v; its log is %s\n", c.name, err, c.log)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready, %w; its log is %s", c.name, err, c.log)
		case <-tick.C:
		}
	}
}

// failure says how the child ended, with the end of its log.
func (c *child) failure() error {
	const most = 1 << 10
	text, err := os.ReadFile(c.log)
	if err != nil {
		return errors.Join(fmt.Errorf("%s ended, %s", c.name, c.end()), err)
	}
	tail := string(text[max(0, len(text)-most):])
	return fmt.Errorf("%s ended, %s; the end of its log %s:\n%s", c.name, c.end(), c.log, strings.TrimSpace(tail))
}

// end says by what the child, which is gone, ended: "signal: killed", "exit status 1".
func (c *child) end() string { return c.cmd.ProcessState.String() }

// stop lets the child end in good order and waits for it; a child that does not
// is killed.
func (c *child) stop() error {
	_ = c.input.Close() // fails only when the child is gone
	select {
	case <-c.ended:
		return nil
	case <-time.After(drainTimeout):
	}
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	<-c.ended
	return fmt.Errorf("stop %s: it did not end within %v and was killed; its log is %s", c.name, drainTimeout, c.log)
}
