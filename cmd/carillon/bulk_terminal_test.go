package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
)

// A window is one of tmux, in which a shell runs commands.
type window struct {
	t    *testing.T
	sock string
}

// newWindow opens one that has run the command.
func newWindow(t *testing.T, command string) window {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	w := window{t, filepath.Join(t.TempDir(), "sock")}
	w.tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "24", "sh", "-c", command+"; echo code $?; read wait")
	t.Cleanup(func() { w.tmux("kill-server") })
	return w
}

func (w window) tmux(arguments ...string) string {
	w.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", w.sock}, arguments...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %v: %v: %s", arguments, err, out)
	}
	return string(out)
}

// await waits until the window shows the text.
func (w window) await(text string) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for give := time.After(patience); ; {
		shown := w.tmux("capture-pane", "-p")
		if strings.Contains(shown, text) {
			return
		}
		select {
		case <-give:
			w.t.Fatalf("%q is not shown within %v:\n%s", text, patience, shown)
		case <-tick.C:
		}
	}
}

func TestBulk_asksWhoIsAtTheTerminal(t *testing.T) {
	s, _, address := served(t)
	const command = "carillon bulk cancel --target orders --reason x --wait --api "
	pending := func() uint64 {
		n, err := s.Admin().Count(t.Context(), client.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		return n.Count
	}
	w := newWindow(t, command+address)
	w.await("10 messages to cancel; go on? [y/N]")
	w.tmux("send-keys", "Enter")
	w.await("carillon: nothing was done\ncode 1")
	if n := pending(); n != 10 {
		t.Errorf("%d are left", n)
	}
	w = newWindow(t, command+address)
	w.await("go on? [y/N]")
	w.tmux("send-keys", "y", "Enter")
	w.await("finished: 10 cancelled, 0 too late, 0 not found, 0 refused\ncode 0")
	if n := pending(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
